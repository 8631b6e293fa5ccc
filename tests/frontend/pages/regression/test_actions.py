"""Who may ask for what on the page of a regression, and how it is refused."""

import re

import httpx
from frontend_site import Site

CONFIRMED = {"project": "northsea/loom", "state": "confirmed"}


def test_a_bisection_is_asked_for_by_who_may_and_refused_in_words(loom: Site) -> None:
    (guilty,) = loom.client.get("/api/v1/regressions", params=CONFIRMED).json()["items"]
    number = guilty["id"]
    address = f"/regressions/{number}/bisect"
    assert httpx.post(loom.url + address, data={"action": "start"}).status_code == 401
    session = httpx.Client(base_url=loom.url, follow_redirects=True, headers={"Accept": "text/html"})
    session.get(loom.sign_in_link())
    token = re.search(r'<meta name="csrf" content="([^"]+)"', session.get(f"/regressions/{number}").text)
    assert token is not None
    form = {"csrf_token": token[1]}
    without = session.post(address, data={"action": "start"}, headers={"Origin": loom.url})
    assert without.status_code == 403
    refused = session.post(address, data=form | {"action": "start"}, headers={"Origin": loom.url})
    assert refused.status_code == 409
    assert "the only commit after the last good one" in refused.text
    assert session.post(address, data=form | {"action": "dance"}, headers={"Origin": loom.url}).status_code == 400
