"""Signing in by GitHub, which is OAuth 2.0 with PKCE and a question who it is: it speaks no OpenID for people."""

from typing import Any
from urllib.parse import urlsplit

from authlib.common.urls import add_params_to_uri

from backend.identity.provider import ProviderIdentity, Refused, SignInAttempt, asked, text_of

PUBLIC_API = "https://api.github.com"


class GitHubProvider:
    """github.com, or the GitHub Enterprise Server whose REST API is at `api_url`."""

    key = "github"
    label = "GitHub"

    def __init__(self, client_id: str, client_secret: str, api_url: str = PUBLIC_API) -> None:
        self.client_id, self._secret = client_id, client_secret
        self.api_url = api_url.rstrip("/")
        split = urlsplit(self.api_url)
        self.web_url = "https://github.com" if self.api_url == PUBLIC_API else f"{split.scheme}://{split.netloc}"

    def address(self, attempt: SignInAttempt, come_back: str) -> str:
        parameters = {
            "client_id": self.client_id,
            "redirect_uri": come_back,
            "state": attempt.state,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return str(add_params_to_uri(f"{self.web_url}/login/oauth/authorize", list(parameters.items())))

    def identify(self, attempt: SignInAttempt, code: str, come_back: str) -> ProviderIdentity:
        form = {
            "client_id": self.client_id,
            "client_secret": self._secret,
            "code": code,
            "redirect_uri": come_back,
            "code_verifier": attempt.verifier,
        }
        headers = {"Accept": "application/json"}
        answer = asked("POST", f"{self.web_url}/login/oauth/access_token", "GitHub", data=form, headers=headers)
        return self._who(answer)

    def _who(self, answer: dict[str, Any]) -> ProviderIdentity:
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise Refused("GitHub answered without a token")
        headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {token}"}
        user = asked("GET", f"{self.api_url}/user", "GitHub", headers=headers)
        number, login = user.get("id"), text_of(user, "login").lower()
        if not isinstance(number, int) or not login:
            raise Refused("GitHub did not say who signed in")
        name = text_of(user, "name") or text_of(user, "login")
        return ProviderIdentity(provider=self.key, subject=str(number), login=login, name=name)
