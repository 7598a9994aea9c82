"""Variables of a rank: those of the job, and no credentials of the platform."""

from pathlib import Path

import pytest

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.environment.process_env import (
    data_function_environment,
    is_same_environment,
    rank_variables,
    user_variables,
    zygote_environment,
)
from regroup.workers.os.node_facts import SecretMissing
from regroup.workers.os.secret_source import SecretSource


def config(**parts: object) -> AgentConfig:
    return AgentConfig("j", "t", "n", "n0", "127.0.0.1", "s", "file:///s", "file:///d", **parts)  # type: ignore[arg-type]


def test_ranks_allocate_huge_pages_unless_the_node_or_the_spec_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert zygote_environment(config())["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")
    assert zygote_environment(config())["GLIBC_TUNABLES"] == "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    assert zygote_environment(config())["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=0"
    assert zygote_environment(config(env={"GLIBC_TUNABLES": ""}))["GLIBC_TUNABLES"] == ""


def test_credentials_of_the_platform_do_not_reach_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = (
        "AWS_SECRET_ACCESS_KEY",
        "RAY_AUTH_TOKEN_PATH",
        "PGPASSWORD",
        "REGROUP_DATABASE_URL",
        "REGROUP_TOKEN",
        "REGROUP_SECRETS_KEY",
    )
    for name in (*credentials, "REGROUP_TOKEN_FILE"):
        monkeypatch.setenv(name, "hidden")
        assert name not in zygote_environment(config()) and name not in data_function_environment(config())
        with pytest.raises(SecretMissing, match=f"{name} of the node belongs to the platform") as refused:
            zygote_environment(config(secrets={"MINE": SecretSource(from_env=name)}))
        assert "hidden" not in str(refused.value)


def test_token_files_of_the_platform_do_not_reach_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ray.token", "api.token", "regroup.db", "secrets.key", "licence"):
        (tmp_path / name).write_text("hidden")
    (tmp_path / "link").symlink_to(tmp_path / "ray.token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "ray.token"))
    for name in ("ray.token", "api.token", "regroup.db", "secrets.key", "link", "../" + tmp_path.name + "/api.token"):
        with pytest.raises(SecretMissing, match=f"{name} of the node belongs to the platform"):
            zygote_environment(config(secrets={"MINE": SecretSource(from_file=str(tmp_path / name))}))
    assert (
        zygote_environment(config(secrets={"MINE": SecretSource(from_file=str(tmp_path / "licence"))}))["MINE"]
        == "hidden"
    )


def test_a_job_receives_its_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER", "token")
    variables = zygote_environment(
        config(env={"AWS_PROFILE": "its own"}, secrets={"KEY": SecretSource(from_env="TRACKER")}, cpus=3)
    )
    assert (variables["AWS_PROFILE"], variables["KEY"], variables["OMP_NUM_THREADS"]) == ("its own", "token", "3")


def test_a_job_with_a_user_of_its_own_gets_only_listed_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANG", "NCCL_DEBUG", "WANDB_API_KEY", "HTTPS_PROXY", "SITE_LICENCE", "REGROUP_DATABASE_URL"):
        monkeypatch.setenv(name, "of the node")
    monkeypatch.setenv("REGROUP_RANK_ENVIRONMENT", "SITE_LICENCE, ABSENT")
    variables = zygote_environment(config(env={"MINE": "1"}, rank_users="200000-200999"))
    found = {name for name, value in variables.items() if value == "of the node"}
    assert found == {"LANG", "NCCL_DEBUG", "SITE_LICENCE"} and variables["MINE"] == "1"
    assert zygote_environment(config())["WANDB_API_KEY"] == "of the node"


def test_folders_of_a_job_with_a_user_of_its_own_are_below_its_home(tmp_path: Path) -> None:
    given = user_variables(config(env={"TMPDIR": "/fast"}), 200_000, tmp_path)
    assert given["HOME"] == str(tmp_path) and given["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path))
    assert given["USER"] == given["LOGNAME"] and "TMPDIR" not in given, "the spec sets it"
    assert user_variables(config(), None, tmp_path) == {}


def test_a_job_with_a_user_of_its_own_gets_no_file_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    monkeypatch.setenv("REGROUP_SECRETS_DIR", str(folder))
    for path in (tmp_path / "shadow", folder / "key"):
        path.write_text("hidden")
    (folder / "link").symlink_to(tmp_path / "shadow")
    for name in ("../shadow", "link"):
        with pytest.raises(SecretMissing, match="is outside"):
            zygote_environment(
                config(secrets={"K": SecretSource(from_file=f"{folder}/{name}")}, rank_users="2000-2999")
            )
    given = zygote_environment(config(secrets={"K": SecretSource(from_file=f"{folder}/key")}, rank_users="2000-2999"))
    assert given["K"] == "hidden"


@pytest.mark.parametrize(
    "other",
    [
        {"env": {"A": "1"}},
        {"cpus": 2},
        {"ifname": "eth0"},
        {"interpreter": "/p"},
        {"requirements": ("a",)},
        {"rank_users": "2000-2999"},
    ],
)
def test_a_zygote_serves_only_jobs_with_the_same_environment(other: dict[str, object]) -> None:
    assert is_same_environment(config(preload=("a",)), config(preload=("b",)))
    assert not is_same_environment(config(), config(**other))


def test_ranks_have_the_newest_secrets_of_the_project(tmp_path: Path) -> None:
    """Set other values after the zygote has started: ranks of later generations have them."""
    made = config(
        secrets={
            "TOKEN": SecretSource(from_project="hf-token"),
            "LICENCE": SecretSource(from_file=str(tmp_path / "file")),
        }
    )
    (tmp_path / "file").write_text("of the node")
    for variables in (zygote_environment, data_function_environment):
        with pytest.raises(SecretMissing, match=r"secret TOKEN: node .* has not received the value of 'hf-token'"):
            variables(made)
    made.project_secrets.update({"hf-token": "hunter2"})
    assert zygote_environment(made)["TOKEN"] == data_function_environment(made)["TOKEN"] == "hunter2"
    made.project_secrets.update({"hf-token": "hunter3"})
    found = rank_variables(made, 0, 0, tmp_path)
    assert found["TOKEN"] == "hunter3" and "LICENCE" not in found
    assert "hunter" not in repr(made)
