"""Make sure a PgBouncer is there for the drill of a larger service: on PATH, else Debian's program unpacked beside this
Python. Nothing is installed and no daemon is started. Prints one line; never fails: what finds none says so."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SELDOM_THERE = re.compile(r"Depends: (libevent\S+|lib\S*ares\S+)")  # what it is linked with and few machines have
UNPACKED = Path(sys.prefix) / "pgbouncer"
LIBRARIES = UNPACKED / "usr" / "lib" / f"{platform.machine()}-linux-gnu"


def pgbouncer() -> Path | None:
    """The program, or None; `LIBRARIES` is where an unpacked one finds what it is linked with."""
    places = f"{os.environ.get('PATH', '')}:/usr/sbin:{UNPACKED / 'usr' / 'sbin'}"
    found = shutil.which("pgbouncer", path=places)
    return None if found is None else Path(found)


def unpack() -> None:
    """Debian's packages, taken apart below `UNPACKED`; nothing where they cannot be had."""
    if os.geteuid() == 0:
        _run("apt-get", "update", "-qq")
    depends = subprocess.run(["apt-cache", "depends", "pgbouncer"], capture_output=True, text=True, check=False).stdout
    with tempfile.TemporaryDirectory() as directory:
        if not _run("apt-get", "download", "-qq", "pgbouncer", *SELDOM_THERE.findall(depends), cwd=directory):
            return
        for package in Path(directory).glob("*.deb"):
            _run("dpkg-deb", "--extract", str(package), str(UNPACKED))
    if not _run(str(UNPACKED / "usr" / "sbin" / "pgbouncer"), "--version"):
        shutil.rmtree(UNPACKED, ignore_errors=True)


def _run(*command: str, cwd: str | None = None) -> bool:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES)}
    return (
        subprocess.run(command, env=environment, cwd=cwd, capture_output=True, check=False, timeout=600).returncode == 0
    )


if __name__ == "__main__":
    if pgbouncer() is None and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        print("unpacking Debian's pgbouncer for the drill of a larger service", flush=True)
        unpack()
    print(f"PgBouncer for the tests: {pgbouncer() or 'none could be found or unpacked; it is left out'}")
