"""The command line as text: its help, its one-line refusals, and how little it loads."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers_tidemark import ROOT, environment, tidemark

from tests.backend.api.conftest import run_document
from tests.conftest import LiveServer
from tidemark.connected.remote import address_of
from tidemark.refusal import Refusal
from tidemark.suite_run import run_suite

HELP = ROOT / "tests" / "golden" / "help"
COMMANDS = (
    "", "up", "demo", "serve", "beat", "worker", "doctor", "sign-in", "run", "submit", "import", "gate", "compare",
    "export", "detect", "judge", "regressions", "explain", "bisect", "ab", "session", "schedules", "backfill",
    "backfill start", "backfill list", "backfill cancel", "project", "project add", "project remove", "project private",
    "member", "member add", "member list", "member remove", "audit", "token", "token create",
    "token list", "token revoke", "db", "db upgrade", "db backup", "db restore", "upstream-report", "github",
    "github settings",
    "github pull-requests", "github approve", "policy", "policy show", "policy preview", "policy choose",
    "notify", "notify list", "notify add", "notify change", "notify remove", "notify test",
)  # fmt: skip


AS_A_TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}

# Each command from the entry point on, as when it is typed; only the start of a process is not repeated for each.
EVERY_HELP = """
import contextlib, io, json, sys
from tidemark.__main__ import main
told = {}
for command in json.loads(sys.argv[1]):
    sys.argv, printed, code = ["tidemark", *command.split(), "--help"], io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    told[command] = (code, printed.getvalue())
json.dump(told, sys.stdout)
"""


@pytest.fixture(scope="module")
def every_help() -> dict[str, tuple[int, str]]:
    """Exit status and text of the help of each command."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", EVERY_HELP, json.dumps(COMMANDS)],
        env=environment(**AS_A_TERMINAL), cwd="/", capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return {command: (code, text) for command, (code, text) in json.loads(done.stdout).items()}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command or "tidemark")
def test_help_says_what_it_said(every_help: dict[str, tuple[int, str]], command: str) -> None:
    """After a wanted change: TIDEMARK_WRITE_GOLDEN=1 make test ARGS="-k help_says", and read the difference."""
    golden = HELP / f"{command.replace(' ', '-') or 'tidemark'}.txt"
    code, text = every_help[command]
    assert code == 0, text
    if os.environ.get("TIDEMARK_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("command", ["", "token create"])
def test_a_process_of_its_own_says_the_same_help(every_help: dict[str, tuple[int, str]], command: str) -> None:
    done = tidemark(*command.split(), "--help", **AS_A_TERMINAL)
    assert (done.returncode, done.stdout) == tuple(every_help[command])


def test_every_command_has_its_help_kept() -> None:
    commands = (HELP / "tidemark.txt").read_text().split("Commands:\n")[1].split("\n\n")[0]
    listed = {line.split()[0] for line in commands.splitlines()}
    assert listed == {command.split()[0] for command in COMMANDS if command}


def test_help_loads_none_of_the_heavy_packages() -> None:
    code = (
        "import sys; sys.argv = ['tidemark', '--help']\n"
        "from tidemark.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sqlalchemy', 'fastapi', 'celery', 'pydantic', 'plotly', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment(), capture_output=True, text=True, cwd="/", check=True
    )
    assert done.stderr.strip() == "[]"


def test_importing_the_package_needs_the_standard_library_only() -> None:
    code = (
        "import sys; import tidemark; "
        "print([n for n in sys.modules if n.split('.')[0] in ('typer', 'pydantic', 'psutil', 'click')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_printed() -> None:
    from tidemark import __version__

    assert tidemark("--version").stdout == f"tidemark {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "/nowhere/a.json", "/nowhere/b.json"), "cannot read /nowhere/a.json: No such file or directory"),
        (("submit", "/nowhere/a.json", "--url", "http://127.0.0.1:9"), "cannot read /nowhere/a.json"),
        (("regressions", "--url", "http://127.0.0.1:9"), "no answer from http://127.0.0.1:9"),
        (("regressions", "--url", "ftp://x"), "must begin with http:// or https://"),
        (("gate", "a", "b", "c"), "3 files were given"),
        (("serve",), "TIDEMARK_DATABASE_URL is not set"),
        (("beat",), "TIDEMARK_DATABASE_URL is not set"),
        (("worker",), "TIDEMARK_REDIS_URL and TIDEMARK_TOKEN not set"),
        (("db", "restore", "/nowhere/backup"), "/nowhere/backup does not exist"),
        (("run", "gpt"), "no tidemark.toml in /"),
    ],
)
def test_a_refusal_is_one_line_on_stderr(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = tidemark(*arguments, TIDEMARK_DATA_DIR=str(tmp_path / "none"))
    assert done.returncode == (2 if arguments[0] == "gate" else 1)
    assert done.stdout == ""
    assert done.stderr.startswith("tidemark: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"])
def test_a_port_where_something_else_answers_is_no_traceback(said: bytes, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(10_000)
                peer.sendall(said)

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = tidemark("regressions", "--url", url, TIDEMARK_DATA_DIR=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"tidemark: {url} does not speak Tidemark's API; is --url right?\n"


def test_a_file_that_is_no_json_is_told_apart_from_one_without_an_id(tmp_path: Path) -> None:
    for text, words in (("{", "it is no JSON"), ("[]", "it has no id"), ("{}", "it has no id")):
        (tmp_path / "run.json").write_text(text)
        done = tidemark("submit", str(tmp_path / "run.json"), "--url", "http://127.0.0.1:9")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert words in done.stderr


def test_commands_that_need_a_service_say_how_to_start_one(tmp_path: Path) -> None:
    done = tidemark("regressions", TIDEMARK_DATA_DIR=str(tmp_path / "none"))
    assert "start one with `tidemark up`" in done.stderr
    done = tidemark("token", "list", TIDEMARK_DATA_DIR=str(tmp_path / "none"))
    assert "`tidemark up` makes one" in done.stderr


def write_run(path: Path, *values: float, head: bool = False) -> Path:
    run = json.loads((ROOT / "tests" / "golden" / "run.json").read_text())
    run["id"] = "01JD2Q8Z6WJ4M6R8T0V2X4Y6Z9" if head else run["id"]
    for result in run["results"]:
        for measurement in result["measurements"]:
            if measurement["metric"] == "step_ms":
                measurement["processes"] = list(values)
                measurement["value"] = sorted(values)[len(values) // 2]
                measurement.pop("samples", None)
                measurement.pop("samples_taken", None)
    path.write_text(json.dumps(run))
    return path


def test_gate_with_two_files_fails_on_twenty_percent_and_passes_on_nothing(tmp_path: Path) -> None:
    base = write_run(tmp_path / "base.json", 5.45, 5.47, 5.46, 5.44, 5.48)
    slow = write_run(tmp_path / "slow.json", 6.55, 6.57, 6.56, 6.54, 6.58, head=True)
    slower = tidemark("gate", str(base), str(slow))
    assert slower.returncode == 1, slower.stderr
    assert "step_ms" in slower.stdout and "1 regression" in slower.stdout
    same = tidemark("gate", str(base), str(base))
    assert same.returncode == 0, same.stdout
    assert "nothing got worse beyond doubt" in same.stdout
    for unjudged in (
        ("gate", str(base), str(tmp_path / "none.json")),
        ("gate", str(base), "--url", "http://127.0.0.1:9"),
    ):
        refused = tidemark(*unjudged)
        assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    compared = tidemark("compare", str(base), str(slow), "--json")
    assert compared.returncode == 0
    assert [key for key in json.loads(compared.stdout)["regressions"] if "step_ms" in key]


def test_gate_with_one_file_passes_a_young_series_and_nothing_that_is_not_judged(
    live_server: LiveServer, tmp_path: Path
) -> None:
    to = ("--url", live_server.url, "--token", live_server.token("submit"))
    young, empty = tmp_path / "young.json", tmp_path / "empty.json"
    young.write_text(json.dumps(run_document(0)))
    failed = {"id": "FAILED-0001", "status": "failed", "error": "out of memory", "results": []}
    empty.write_text(json.dumps({**run_document(1), **failed}))
    passed = tidemark("gate", str(young), *to)
    assert passed.returncode == 0 and "insufficient" in passed.stdout, passed.stderr
    refused = tidemark("gate", str(empty), *to)
    assert refused.returncode == 2 and "its status is failed" in refused.stderr, refused.stderr


STEADY = {"series_id": "s", "direction": "lower_is_better", "machine": "m", "values": [[1.0, 1.01, 0.99]] * 12}


def fed(command: tuple[str, ...], text: str) -> subprocess.CompletedProcess[str]:
    """A command with this on its standard input."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "tidemark", *command],
        input=text, env=environment(), capture_output=True, text=True, cwd="/", check=False,
    )  # fmt: skip


def test_detect_speaks_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "histories.jsonl"
    file.write_text(json.dumps(STEADY) + "\n")
    for done in (
        fed(("detect",), file.read_text()),
        fed(("detect", str(file)), ""),
        fed(("detect", "-"), file.read_text()),
    ):
        assert done.returncode == 0, done.stderr
        (answer,) = map(json.loads, done.stdout.splitlines())
        assert (answer["series_id"], answer["regressions"], answer["verdict"]) == ("s", [], "unchanged")


def test_detect_goes_on_after_a_line_that_cannot_be_judged_and_says_so_at_its_end() -> None:
    bad = {**STEADY, "series_id": "t", "values": [1.0, 2.0, -9.04]}
    done = fed(("detect",), "\n".join([json.dumps(STEADY), "junk", json.dumps(bad), json.dumps(STEADY)]))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and [("error" in answer) for answer in answers] == [False, True, True, False]
    said = "values[2] is -9.04; accepted: a number from 1e-100 to 1e100"
    assert answers[2] == {"line": 3, "series_id": "t", "error": said}
    assert f"tidemark: line 3 is not judged: {said}" in done.stderr and done.stderr.count("\n") == 2


def test_detect_says_when_there_was_nothing_to_read(tmp_path: Path) -> None:
    nothing = fed(("detect",), "\n")
    assert nothing.returncode == 0 and "there was no line to judge. One looks like this: {" in nothing.stderr
    missing = fed(("detect", str(tmp_path / "none")), "")
    assert missing.returncode == 1 and "No such file" in missing.stderr and missing.stderr.count("\n") == 1
    closed = subprocess.run(
        ["sh", "-c", f"{sys.executable} -P -m tidemark detect <&-"],
        env=environment(), capture_output=True, text=True, cwd="/", check=False,
    )  # fmt: skip
    assert (closed.returncode, closed.stderr) == (1, "tidemark: there is no standard input: give a file\n")


def test_detect_reads_a_file_that_begins_with_a_byte_order_mark_whatever_the_locale(tmp_path: Path) -> None:
    line = json.dumps({**STEADY, "series_id": "é"}, ensure_ascii=False) + "\n"
    file = tmp_path / "histories.jsonl"
    file.write_text(line, encoding="utf-8-sig")
    for command in (
        f"cat {file} | {sys.executable} -P -m tidemark detect",
        f"{sys.executable} -P -m tidemark detect {file}",
    ):
        done = subprocess.run(
            ["sh", "-c", command], env=environment(LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0"),
            capture_output=True, text=True, cwd="/", check=False,
        )  # fmt: skip
        assert done.returncode == 0 and json.loads(done.stdout)["series_id"] == "é", done.stderr


def test_output_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "histories.jsonl"
    file.write_text(json.dumps(STEADY) + "\n")
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -P -m tidemark detect {file} >/dev/full"],
        env=environment(), capture_output=True, text=True, cwd="/", check=False,
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr == "tidemark: No space left on device\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]", "line 2 cannot be judged: found []; expected a JSON object"),
        ('{"type": "tea"}', "line 2 cannot be judged: "),
        ('{"type": "run"}', "line 2 has no 'values'"),
    ],
)
def test_judge_refuses_a_line_by_its_number_after_the_first_is_answered(line: str, said: str) -> None:
    known = {"type": "fleet", "series": [], "testbeds": {}, "canary": {}}
    done = fed(("judge", "--stream"), f"{json.dumps(known)}\n{line}\n")
    assert done.returncode != 0 and len(done.stdout.splitlines()) == 1
    assert done.stderr.startswith(f"tidemark: {said}") and "Traceback" not in done.stderr


def test_judge_answers_every_line_of_a_fleet() -> None:
    series = {
        "id": "moe.b0/step_time_ms", "suite": "moe", "benchmark": "moe.b0", "metric": "step_time_ms", "unit": "ms",
        "direction": "lower_is_better", "role": "gate", "exact": False,
    }  # fmt: skip
    lines = [{"type": "fleet", "series": [series], "testbeds": {"t": ["w"]}, "canary": {}}, {"type": "end"}]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tidemark", "judge", "--stream"],
        input="".join(json.dumps(line) + "\n" for line in lines), env=environment(), capture_output=True, text=True,
        cwd="/", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"incidents": []}, {"incidents": []}]


def test_judge_without_a_stream_says_what_it_reads() -> None:
    done = tidemark("judge")
    assert done.returncode == 2
    assert "give --stream" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with io.FileIO(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tidemark", "--version"],
            stdout=closed, stderr=subprocess.PIPE, env=environment(PYTHONUNBUFFERED="1"), cwd="/", check=False,
        )  # fmt: skip
    assert b"Traceback" not in done.stderr


def test_a_data_directory_is_named_once_for_every_command(tmp_path: Path) -> None:
    done = tidemark("--data-dir", str(tmp_path / "elsewhere"), "regressions", TIDEMARK_URL="")
    assert done.returncode == 1
    assert f"no service is running on {tmp_path / 'elsewhere'}" in done.stderr


def test_a_suite_run_here_finds_the_python_that_has_tidemark_without_an_active_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "command -v python > $TIDEMARK_RUN_JSON"
    (tmp_path / "tidemark.toml").write_text(f'[suite.own]\ncommand = "{command}"\ntestbeds = ["cpu"]\n')
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert run_suite("own", tmp_path, tmp_path / "run.json") == 0
    assert (tmp_path / "run.json").read_text().strip() == str(Path(sys.executable).parent / "python")


def test_a_suite_run_here_tells_its_command_all_about_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RUN_ID", "PROJECT", "COMMIT", "SUITE", "TESTBED")
    for name in names:
        monkeypatch.delenv(f"TIDEMARK_{name}", raising=False)
    checkout = tmp_path / "my loom"
    checkout.mkdir()
    command = "printf '%s\\\\n' " + " ".join(f"$TIDEMARK_{name}" for name in names) + " > $TIDEMARK_RUN_JSON"
    (checkout / "tidemark.toml").write_text(f'[suite.own]\ncommand = "{command}"\ntestbeds = ["gpu-a", "cpu"]\n')
    assert run_suite("own", checkout, tmp_path / "run.json") == 0
    run_id, *others = (tmp_path / "run.json").read_text().split()
    assert len(run_id) == 26
    assert others == ["local/my-loom", "0" * 40, "own", "gpu-a"]


def test_an_older_result_is_not_taken_for_that_of_a_suite_that_wrote_none(tmp_path: Path) -> None:
    (tmp_path / "tidemark.toml").write_text('[suite.own]\ncommand = "true"\ntestbeds = ["cpu"]\n')
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(Refusal, match="wrote no run"):
        run_suite("own", tmp_path, tmp_path / "run.json")


def test_a_suite_that_fails_without_a_word_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, said in (("exit 3", "ended with status 3"), ("kill -9 $$", "ended by signal 9")):
        (tmp_path / "tidemark.toml").write_text(f'[suite.own]\ncommand = "{command}"\ntestbeds = ["cpu"]\n')
        assert run_suite("own", tmp_path, tmp_path / "run.json") != 0
        assert capsys.readouterr().err == f"tidemark: suite own: its command {said}\n"


def test_a_directory_that_git_cannot_read_is_no_repository_to_watch(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"is no git repository that can be read: fatal: not a git repository"):
        address_of(str(tmp_path))
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=20)
    assert address_of(str(tmp_path)) == tmp_path.resolve().as_uri()
