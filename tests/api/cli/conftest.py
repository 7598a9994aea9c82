"""The command line in this process, with a server that several tests of a file use."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from regroup.api.cli.main import main
from tests.support.servers.app_server import AppServer

SPEC: dict[str, Any] = {
    "name": "gpt",
    "workload": {"kind": "builtin", "data": {"train": ["/data/*.txt"]}},
    "layout": {"dp": 4},
    "training": {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 300},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    serving = AppServer(tmp_path_factory.mktemp("state"))
    yield serving
    serving.stop()


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(server: AppServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    monkeypatch.setenv("REGROUP_SERVER", server.url)

    def run(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return run


names = (f"gpt-{number}" for number in itertools.count())


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "name": next(names)}))
    return path


@pytest.fixture
def job(cli: Callable[..., Done], spec: Path) -> str:
    return cli("submit", spec).out.strip()
