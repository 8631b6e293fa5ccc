"""Everybody sees and ends their own browsers; who administers the service, all."""

from __future__ import annotations

from tests.backend.people_of_tests import browser, make_project
from tests.conftest import LiveServer

HERE = "/api/v1/sign-ins"


def test_a_person_sees_and_ends_their_own_alone(live_server: LiveServer) -> None:
    make_project(live_server.engine, "a/b")
    with browser(live_server, "ada", a_b="viewer") as ada, browser(live_server, "bob", a_b="admin") as bob:
        (mine,) = ada.get(HERE).json()["items"]
        (his,) = bob.get(HERE).json()["items"]
        assert (mine["login"], mine["browser"]) == ("ada", "Firefox 130")
        assert ada.delete(f"{HERE}/{his['id']}").status_code == 404
        assert ada.delete(HERE).status_code == 204
        assert ada.get(HERE).status_code == 401 and bob.get(HERE).status_code == 200


def test_who_administers_the_service_ends_any_and_may_mean_their_own(live_server: LiveServer) -> None:
    with browser(live_server, "root", everywhere="admin") as root, browser(live_server, "ada") as ada:
        assert {it["login"] for it in root.get(HERE).json()["items"]} == {"root", "ada"}
        assert [it["login"] for it in root.get(HERE, params={"mine": "true"}).json()["items"]] == ["root"]
        with browser(live_server, "root", everywhere="admin") as other:
            assert other.delete(HERE, params={"mine": "true"}).status_code == 204
        assert root.get(HERE).status_code == 401 and ada.get(HERE).status_code == 200
        with browser(live_server, "root", everywhere="admin") as again:
            assert again.delete(HERE).status_code == 204
        assert ada.get(HERE).status_code == 401
