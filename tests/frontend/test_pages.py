"""Pages without a browser: what they contain, what they promise, how they answer what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import frontend_history as history
import httpx
import pytest
from frontend_site import Site

from backend.services.comparison.commits import PhaseDifference
from frontend.first_run import worker_step
from frontend.pages.compare import milliseconds
from frontend.pages.regression import page as regression_page
from tidemark.settings import Settings

PROJECT = "northsea/loom"
GUILTY = 18
PAGES = (
    "/",
    "/board",
    "/regressions",
    "/series",
    "/suites/moe",
    "/suites/gpt?benchmark=gpt.train&all=1",
    "/compare",
    "/workers",
    "/rule",
    "/search?q=router",
    "/settings",
    "/sign-in",
)


@pytest.fixture
def anyone(loom: Site) -> httpx.Client:
    return httpx.Client(
        base_url=loom.url, headers={"Accept": "text/html"}, follow_redirects=True, timeout=30, verify=False
    )


def guilty_regression(site: Site) -> dict[str, Any]:
    items = site.client.get("/api/v1/regressions", params={"project": PROJECT, "state": "confirmed"}).json()["items"]
    assert len(items) == 1, items
    found: dict[str, Any] = items[0]
    return found


@pytest.mark.parametrize("path", PAGES)
def test_a_page_comes_whole_compressed_and_safe(anyone: httpx.Client, path: str) -> None:
    answer = anyone.get(path)
    assert answer.status_code == 200, answer.text[:500]
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < 150_000
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert re.search(r'<meta property="og:title" content="[^"]+">', answer.text)
    assert re.search(r'<meta property="og:description" content="[^"]{10,}">', answer.text)


def test_the_board_shows_the_onset_in_red_where_it_is(anyone: httpx.Client, loom: Site) -> None:
    text = anyone.get("/board").text
    guilty = loom.commits[PROJECT][GUILTY]
    row = next(row for row in text.split("<tr ") if guilty.sha in row.split(">")[0])
    assert row.count('class="r st c vc') == 2, "a stem leads down to it"
    assert row.count("▼24") == 2
    assert f'href="/regressions/{guilty_regression(loom)["id"]}"' in row


def test_the_page_of_a_regression_names_the_commit_its_author_and_the_phase_that_grew(
    anyone: httpx.Client, loom: Site
) -> None:
    text = anyone.get(f"/regressions/{guilty_regression(loom)['id']}").text
    guilty = loom.commits[PROJECT][GUILTY]
    sentence = re.sub(r"<[^>]+>", "", re.search(r"<h1[^>]*>(.*?)</h1>", text, re.S)[1])  # type: ignore[index]
    assert guilty.sha[:7] in sentence
    assert "slower" in sentence
    assert "the cause is code" in sentence
    assert "forward carries" in text
    assert f"git checkout --quiet {guilty.sha}" in text


def test_an_onset_older_than_the_newest_points_is_in_its_chart(
    anyone: httpx.Client, loom: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regression_page, "BEFORE", 2)
    monkeypatch.setattr(regression_page, "AFTER", 2)
    fixed = loom.client.get("/api/v1/regressions", params={"project": PROJECT, "state": "closed"}).json()["items"][0]
    page = anyone.get(f"/regressions/{fixed['id']}").text
    figure = re.search(r'id="trend-chart-figure">(.*?)</script>', page, re.S)[1]  # type: ignore[index]
    assert fixed["first_bad"]["sha"][:7] in figure


def test_the_page_of_a_regression_shows_kernels_and_roofline_before_and_after(anyone: httpx.Client, loom: Site) -> None:
    text = anyone.get(f"/regressions/{guilty_regression(loom)['id']}").text
    assert "replaces triton_fused_router_topk" in text
    row = next(row for row in text.split("<tr>") if "elementwise_cast" in row)
    assert "more calls" in row
    assert "+520" in row
    assert 'id="roofline"' in text
    assert re.search(r"TFLOP/s, \d+\u202f% of the [\d.]+ above it", text)


def test_compare_shows_the_kernels_of_what_changed(anyone: httpx.Client, loom: Site) -> None:
    shas = [loom.commits[PROJECT][index].sha for index in (GUILTY - 1, GUILTY)]
    text = anyone.get("/compare", params={"base": shas[0], "head": shas[1]}).text
    assert text.count("replaces triton_fused_router_topk") == 2  # of both variants that got slower


def test_a_run_stands_under_the_ceilings_it_measured(anyone: httpx.Client, loom: Site) -> None:
    text = anyone.get(f"/runs/northsea-loom-moe-{loom.commits[PROJECT][GUILTY].sha[:12]}-0").text
    assert "4 compute results under the ceilings this run measured: gemm fp32 0.210 TFLOP/s" in text
    assert 'data-figure="roofline-chart-figure"' in text


def test_a_suite_says_what_is_slower_now_and_leads_to_the_case(anyone: httpx.Client, loom: Site) -> None:
    text = anyone.get("/suites/moe").text
    assert "2 of 4 gates are slower now" in text
    assert f'href="/regressions/{guilty_regression(loom)["id"]}"' in text
    assert "data-figure" in text
    refused = anyone.get("/suites/nosuch")
    assert refused.status_code == 404
    assert "gpt" in refused.text


def test_compare_begins_with_what_was_compared_where_a_run_failed(anyone: httpx.Client, loom: Site) -> None:
    shas = [loom.commits[PROJECT][index].sha for index in (19, 20)]  # one variant of gpt failed at the second
    sentence = re.search(r"<h1[^>]*>(.*?)</h1>", anyone.get("/compare", params={"base": shas[0], "head": shas[1]}).text)
    assert sentence is not None
    assert sentence[1].startswith("Only 6 of 7 gates were compared")
    assert "same" not in sentence[1]


def test_phases_relative_to_a_yardstick_are_not_added_to_milliseconds() -> None:
    phases = tuple(
        PhaseDifference(suite="gpt", benchmark="b", variant_key="", phase=phase, unit=unit, base=base, head=head)
        for phase, unit, base, head in (("forward", "ms", 5.0, 7.0), ("forward_over_yardstick", "ratio", 0.6, 0.9))
    )
    assert [(phase.phase, phase.base) for phase in milliseconds(phases)] == [("forward", 5.0)]


def test_text_of_a_commit_is_shown_as_text_everywhere(anyone: httpx.Client, loom: Site) -> None:
    series = loom.client.get("/api/v1/series", params={"project": PROJECT, "role": "gate"}).json()["items"][0]["id"]
    hostile = loom.commits[PROJECT][21]
    for path in (
        "/board",
        f"/series/{series}",
        f"/compare?head={hostile.sha}",
        "/search?q=onerror",
        f"/runs/northsea-loom-gpt-{hostile.sha[:12]}-0",
    ):
        text = anyone.get(path).text
        assert "<img src=x" not in text, path
        assert "\u202e" not in text, path
        assert "&lt;img src=x" in text, path
    failed = loom.commits[PROJECT][20]
    assert "expected &lt;b&gt;scale&lt;/b&gt;" in anyone.get(f"/runs/northsea-loom-gpt-{failed.sha[:12]}-0").text


def test_the_page_and_the_command_tell_the_noise_of_a_series_and_what_it_asks_for(
    anyone: httpx.Client, loom: Site
) -> None:
    number = loom.client.get("/api/v1/series", params={"project": PROJECT, "role": "gate"}).json()["items"][0]["id"]
    profile = loom.client.get(f"/api/v1/series/{number}").json()["profile"]
    text = anyone.get(f"/series/{number}").text
    assert f"<dt>Runs at this level</dt><dd><b>{profile['runs']}</b></dd>" in text
    assert f"<dt>It asks for</dt><dd><b>{profile['sustained_runs']} bad runs</b></dd>" in text
    newest = loom.client.get(f"/api/v1/series/{number}/points", params={"last": 1}).json()["sha"][0]
    command = [sys.executable, "-m", "tidemark", "explain", str(number), newest, "--url", loom.url]
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert said.stdout.endswith(f"The series: {profile['text']}\n"), said.stderr


def test_the_checkout_that_another_run_of_the_same_environment_told_is_not_shown(
    anyone: httpx.Client, loom: Site
) -> None:
    guilty = loom.commits[PROJECT][GUILTY]
    text = anyone.get(f"/runs/northsea-loom-gpt-{guilty.sha[:12]}-0").text
    assert "<dt>torch</dt>" in text
    assert "<dt>git commit</dt>" not in text


def test_a_long_parameter_is_cut_in_the_heading_of_its_series_and_stands_whole_on_the_page(own_site: Site) -> None:
    command = "--args " + " ".join(f"--option-{number}={number}" for number in range(400))
    table = f"benchmark,metric,value,unit,commit\nroute,step,1.5,ms,{'a' * 40}\n"
    query = {"project": "northsea/loom", "testbed": "cpu", "variant": f"command={command}"}
    assert own_site.client.post("/api/v1/import/csv", params=query, content=table).json()["counts"]["stored"] == 1
    (series,) = own_site.client.get("/api/v1/series", params={"project": "northsea/loom"}).json()["items"]
    text = own_site.client.get(f"/series/{series['id']}").text
    assert command in text and text.count(command) == 1
    assert f"command={command[:59]}…</h1>" in text


def test_what_does_not_exist_is_a_page_that_helps(anyone: httpx.Client) -> None:
    answer = anyone.get("/series/999999")
    assert answer.status_code == 404
    assert "Unknown series 999999" in answer.text
    assert 'action="/search"' in answer.text
    assert answer.headers["x-request-id"] in answer.text


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/board?project=nobody/nothing", "northsea/loom"),
        ("/board?testbed=tpu", "cpu"),
        ("/board?range=eternity", "7d"),
        ("/board?lens=magnifying", "moved"),
        ("/board?since=yesterday", "2026-11-20"),
        ("/board?until=9999-12-31", "from the year 1970 to 9000"),
        ("/regressions?until=9999-12-31", "from the year 1970 to 9000"),
        ("/?until=9999-12-31", "from the year 1970 to 9000"),
        ("/regressions?min_change=much", "percent"),
        ("/regressions?state=sleepy", "suspect"),
    ],
)
def test_a_wrong_parameter_is_answered_with_what_is_accepted(anyone: httpx.Client, path: str, says: str) -> None:
    answer = anyone.get(path)
    assert answer.status_code in (400, 404)
    assert says in answer.text


def test_a_board_that_matches_nothing_says_so_and_offers_a_way_back(anyone: httpx.Client) -> None:
    text = anyone.get("/board?q=nobodywrotethis").text
    assert "No commit of main on cpu matches these filters" in text
    assert "Clear filters" in text
    text = anyone.get("/board?q=nobodywrotethis&range=90d").text
    assert "Widen to all" in text and "Widen to 30 d" not in text


def test_a_board_of_all_history_offers_no_wider_one(own_site: Site) -> None:
    watched = {"metric": "latency_ms", "unit": "ms", "direction": "lower", "role": "watch", "value": 10.0}
    result = {"benchmark": "step", "variant": {}, "status": "ok", "measurements": [watched]}
    about = {"project": "bare/loom", "suite": "own", "testbed": "cpu", "branch": "main", "commit": "c" * 40}
    run = {"schema": "tidemark.run/1", "id": "WATCHED-1", "status": "ok", "results": [result], **about}
    assert own_site.client.put("/api/v1/runs/WATCHED-1", json=run).status_code == 201
    for asked in ({}, {"range": "all"}):
        text = httpx.get(f"{own_site.url}/board", params={"project": "bare/loom", **asked}).text
        said = re.sub("<[^>]+>", " ", text.partition("<main")[2])
        assert "Nothing of main on cpu has a result to show yet." in said and "1 commit known." in said
        assert "Widen to" not in text


def test_filters_narrow_the_board(anyone: httpx.Client) -> None:
    text = anyone.get("/board?suite=moe&changed=1").text
    assert 'data-k="suite:gpt"' not in text
    assert 0 < text.count("<tr data-c=") < 10


@pytest.mark.parametrize("path", ["/series/abc", "/regressions/%3Cb%3E"])
def test_an_address_that_can_name_nothing_says_what_belongs_there(anyone: httpx.Client, path: str) -> None:
    answer = anyone.get(path)
    assert answer.status_code == 404
    assert "a number belongs at its end" in answer.text
    assert "<b>" not in answer.text.split("<h1>")[1].split("</p>")[0]


def test_folded_suites_show_their_worst_state(anyone: httpx.Client) -> None:
    text = anyone.get("/board?lens=suites").text
    assert 'class="vc' not in text.split("<tbody>")[1]
    assert re.search(r'class="t c roll wide[^"]*"[^>]*><a [^>]*>▽×2</a>', text)


def test_live_patches_are_the_faces_of_the_page(anyone: httpx.Client, loom: Site) -> None:
    patch = anyone.get("/board/patch").json()
    faces = patch["rows"][loom.commits[PROJECT][GUILTY].sha]
    assert len(faces) == len(patch["keys"])
    looks = [face[0] for face in faces]
    assert (looks.count("r st"), looks.count("r")) == (2, 1), "two variants, and the suite's roll-up"
    assert "open regression" in patch["strip"]


def test_the_feed_is_well_formed(anyone: httpx.Client, loom: Site) -> None:
    feed = ElementTree.fromstring(anyone.get("/regressions.atom").content)
    titles = [
        entry.findtext("{http://www.w3.org/2005/Atom}title")
        for entry in feed.iter("{http://www.w3.org/2005/Atom}entry")
    ]
    assert any(title and title.startswith(f"R-{guilty_regression(loom)['id']} confirmed") for title in titles)


def test_a_sha_a_number_and_a_run_lead_straight_to_their_pages(loom: Site) -> None:
    client = httpx.Client(base_url=loom.url, timeout=30, verify=False)
    sha = loom.commits[PROJECT][GUILTY].sha
    number = guilty_regression(loom)["id"]
    assert client.get("/search", params={"q": f"R-{number}"}).headers["location"] == f"/regressions/{number}"
    assert f"head={sha}" in client.get("/search", params={"q": sha[:10]}).headers["location"]
    run = f"northsea-loom-moe-{sha[:12]}-0"
    assert client.get("/search", params={"q": run}).headers["location"] == f"/runs/{run}"


def test_strangers_cannot_act(loom: Site) -> None:
    number = guilty_regression(loom)["id"]
    form = {"action": "acknowledge", "csrf_token": "made up"}
    assert httpx.post(f"{loom.url}/regressions/{number}/triage", data=form).status_code == 401
    session = httpx.Client(base_url=loom.url, follow_redirects=True, verify=False)
    session.get(loom.sign_in_link())
    without_token = session.post(f"/regressions/{number}/triage", data=form, headers={"Origin": loom.url})
    assert without_token.status_code == 403
    assert guilty_regression(loom)["owner"] is None


def test_only_what_moved_keeps_each_metric_in_its_own_column(own_site: Site, tmp_path: Any) -> None:
    commits = history.make_repository(tmp_path / "two", 16)
    own_site.add_project("a/two", tmp_path / "two", commits)
    variants = {"gpt": (("gpt.train", {"n": 1}, 10.0),)}
    for commit in commits:
        document = history.run_document("a/two", commit, "gpt", variants=variants, metrics=("step_ms",))
        larger = 3_000_000.0 if commit.index >= 10 else 1_000_000.0
        document["results"][0]["measurements"].append(
            {"metric": "activation_bytes", "unit": "B", "direction": "lower", "role": "gate", "value": larger}
        )
        own_site.put(document)
    text = httpx.get(own_site.url + "/board", params={"project": "a/two", "changed": "1"}).text
    shown = [commit.sha for commit in commits if f"<tr data-c='{commit.sha}'" in text]
    assert shown == [commits[10].sha, commits[-1].sha], "what moved, and the newest for what stands now"
    assert "4 quiet commits" in text
    assert ">step_ms</a>" in text and ">activation_bytes</a>" in text
    (case,) = httpx.get(own_site.url + "/api/v1/regressions", params={"project": "a/two"}).json()["items"]
    page = httpx.get(f"{own_site.url}/regressions/{case['id']}").text
    assert "Time did not move" in page and "What is allocated" in page
    row = next(row for row in page.split("<tr>") if "<code>activation_bytes</code>" in row)
    assert "1.00" in row and "3.00" in row and "+200.0 %" in row
    for evidence_of_time in ("phases", "kernels", "roofline"):
        assert f'id="{evidence_of_time}"' not in page


def test_a_large_board_stays_small_on_the_wire(own_site: Site, tmp_path: Any) -> None:
    variants = {"wide": tuple(("wide.op", {"n": n}, 1.0 + n / 100) for n in range(200))}
    commits = history.make_repository(tmp_path / "wide", 6)
    own_site.add_project("a/wide", tmp_path / "wide", commits)
    own_site.deliver("a/wide", "wide", variants=variants)
    answer = httpx.get(own_site.url + "/board", params={"project": "a/wide", "lens": "all"}, timeout=60)
    assert answer.text.count('scope="col" data-k="wide/') == 200
    assert int(answer.headers["content-length"]) < 150_000


def test_an_empty_service_welcomes_and_says_what_to_do(own_site: Site) -> None:
    text = httpx.get(own_site.url + "/", follow_redirects=True).text
    assert "Four steps to the first row" in text
    assert "Connect a project" in text
    for path in ("/regressions", "/series", "/compare", "/workers", "/search?q=x"):
        assert httpx.get(own_site.url + path).status_code == 200, path


def test_the_settings_that_start_a_worker_are_ones_that_a_worker_reads() -> None:
    named = set(re.findall(r"TIDEMARK_[A-Z_]+", worker_step(None, "http://tidemark.example").command))
    assert named == {"TIDEMARK_URL", "TIDEMARK_TOKEN", "TIDEMARK_REDIS_URL"}
    assert {f"TIDEMARK_{name}".upper() for name in Settings.model_fields} >= named


def test_the_first_run_ticks_its_steps_off(own_site: Site, tmp_path: Any) -> None:
    commits = history.make_repository(tmp_path / "young", 3)
    own_site.add_project("a/young", tmp_path / "young", commits)
    board = own_site.url + "/board?project=a/young"
    assert "tidemark.toml in the repository says what to run" in httpx.get(board).text
    own_site.deliver("a/young", "gpt")
    assert 'id="grid"' in httpx.get(board).text
