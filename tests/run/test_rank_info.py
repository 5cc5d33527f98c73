"""Which rank a process is, by the names of each launcher."""

import pytest

from manyheads.runner.run.rank_info import NAMES, RankInfo, read_rank_info, without_place

PYTORCH, HOROVOD, OPEN_MPI = (dict(zip(names, ("5", "1", "8"), strict=True)) for names in NAMES)
OTHER = dict.fromkeys(
    ("PATH", "HOROVOD_CYCLE_TIME", "OMPI_MCA_btl", "RANKING", "PMIX_MCA_gds", "HOROVOD_CONTROLLER"), "1"
)


@pytest.fixture
def environment(monkeypatch):
    """The names of all launchers are unset, and these are set."""

    def pretend(variables: dict[str, str]) -> None:
        for name in (name for names in NAMES for name in names):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return pretend


@pytest.mark.parametrize("variables", [PYTORCH, HOROVOD, OPEN_MPI])
def test_each_launchers_names_are_understood(environment, variables):
    environment(variables)
    assert read_rank_info() == RankInfo(rank=5, local_rank=1, world_size=8)


@pytest.mark.parametrize(
    ("first", "second"), [(PYTORCH, HOROVOD), (PYTORCH, OPEN_MPI), (HOROVOD, OPEN_MPI)], ids=["PH", "PM", "HM"]
)
def test_pytorchs_names_win_and_then_horovods(environment, first, second):
    """horovodrun over mpirun sets both kinds."""
    environment({**second, **dict(zip(first, ("3", "0", "4"), strict=True))})
    assert read_rank_info() == RankInfo(rank=3, local_rank=0, world_size=4)


@pytest.mark.parametrize("missing", NAMES[0])
def test_names_count_only_together(environment, missing):
    environment({**{name: "0" for name in PYTORCH if name != missing}, **OPEN_MPI})
    assert read_rank_info() == RankInfo(5, 1, 8)


def test_without_a_launcher_there_is_no_place(environment):
    environment({})
    with pytest.raises(KeyError, match="RANK, HOROVOD_RANK, OMPI_COMM_WORLD_RANK is set: ranks must be started by"):
        read_rank_info()


@pytest.mark.parametrize("outer", [PYTORCH, {name: HOROVOD[name] for name in list(HOROVOD)[1:]}])
def test_only_the_place_is_taken_away(outer):
    assert without_place({**OTHER, **outer}) == OTHER


@pytest.mark.parametrize(
    ("outer", "told", "kept"),
    [
        (
            HOROVOD,
            ("HOROVOD_CONTROLLER", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_IFACE", "HOROVOD_LOCAL_SIZE")
            + ("HOROVOD_CROSS_RANK", "HOROVOD_CPU_OPERATIONS", "HOROVOD_HOSTNAME"),
            ("HOROVOD_CYCLE_TIME", "HOROVOD_TIMELINE", "OMPI_MCA_btl", "PMIX_MCA_gds"),
        ),
        (
            OPEN_MPI,
            ("OMPI_MCA_ess", "OMPI_UNIVERSE_SIZE", "PMIX_RANK", "PMIX_SERVER_URI4", "PRTE_MCA_ess_base_jobid"),
            ("OMPI_ALLOW_RUN_AS_ROOT", "HOROVOD_CONTROLLER", "MPI_HOME"),
        ),
    ],
    ids=["horovodrun", "mpirun"],
)
def test_below_an_outer_launcher_nothing_of_what_it_told_is_left(outer, told, kept):
    """With what mpirun told its ranks, another refuses to start: "mpirun does not support recursive calls"."""
    kept = dict.fromkeys(kept, "1")
    assert without_place({**outer, **kept, **dict.fromkeys(told, "1")}) == kept
