"""Starts both embedded servers in the directory it is given, asks each a question and stops them (run by a test)."""

import os
import sys
from pathlib import Path

import psycopg
import redis

from tidemark.machine.account import servers_home
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.processes import end, identify, wait_until
from tidemark.machine.valkey import EmbeddedValkey


def main() -> None:
    assert os.geteuid() != 0
    data = DataDirectory.prepare(Path(sys.argv[1]))
    home = servers_home(data)
    for server in (EmbeddedPostgres(data, home), EmbeddedValkey(data, home)):
        with (data.logs / f"{server.name}.log").open("ab") as output:
            child = server.start(output.fileno())
        process = identify(child.pid)
        assert process is not None
        assert wait_until(lambda server=server, process=process: server.is_ready(process), 30)
        if isinstance(server, EmbeddedPostgres):
            psycopg.connect(server.url_of("postgres")).close()
        else:
            redis.Redis.from_url(server.url).ping()
        end([process], first=server.stop_signal)
        child.wait()
        print(server.name)


if __name__ == "__main__":
    main()
