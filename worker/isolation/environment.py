"""The variables that commit code gets to see: an allow-list, so that an unexpected secret stays out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# What builds and measurements legitimately depend on. Anything else needs naming in the worker's settings.
_PASSED = frozenset(
    {
        "LANG",
        "LANGUAGE",
        "TZ",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "CPATH",
        "CC",
        "CXX",
        "CFLAGS",
        "CXXFLAGS",
        "LDFLAGS",
        "MAX_JOBS",
        "CMAKE_PREFIX_PATH",
        "PKG_CONFIG_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "PIP_CERT",
        "NODE_EXTRA_CA_CERTS",
        "SYSTEMROOT",
        "TIDEMARK_CONTAINER",
    }
)
_PASSED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "GOMP_", "GLOO_")
# Addresses that builds need; passed on only when no password is in them.
_PASSED_ADDRESSES = frozenset(
    {
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_TRUSTED_HOST",
        "UV_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
    }
)
_LOOKS_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|PRIVATE|API_?KEY|AUTH", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateDirectories:
    """Directories of one run (or one side of a session) alone: what another compiled must not make it faster."""

    home: Path
    temporary: Path
    compile_cache: Path

    def variables(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.compile_cache / "inductor"),
            "TRITON_CACHE_DIR": str(self.compile_cache / "triton"),
            "CUDA_CACHE_PATH": str(self.compile_cache / "cuda"),
        }


def commit_environment(
    own: Mapping[str, str],
    *,
    suite: Mapping[str, str],
    run: Mapping[str, str],
    private: PrivateDirectories,
    python_bin: Path,
    also_pass: Iterable[str] = (),
) -> dict[str, str]:
    """Environment of a run's command: the machine's harmless variables, the suite's, and the run's, in that order."""
    named = frozenset(also_pass)
    passed = {name: value for name, value in own.items() if name in named or _is_harmless(name, value)}
    given = {
        **private.variables(),
        "PATH": f"{python_bin}{os.pathsep}{own.get('PATH', os.defpath)}",
        "USER": "tidemark",
        "LOGNAME": "tidemark",
        "PYTHONUNBUFFERED": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    wanted = {name: value for name, value in suite.items() if VARIABLE.fullmatch(name) and "\0" not in value}
    return {**passed, **given, **wanted, **run}


def _is_harmless(name: str, value: str) -> bool:
    upper = name.upper()
    if upper in _PASSED_ADDRESSES:
        return all(_has_no_password(address) for address in value.split())
    if _LOOKS_SECRET.search(upper):
        return False
    return upper in _PASSED or upper.startswith(_PASSED_PREFIXES)


def _has_no_password(address: str) -> bool:
    try:
        return "@" not in urlsplit(address if "//" in address else f"//{address}").netloc
    except ValueError:
        return False
