"""What vLLM is started with; needs no vLLM."""

import pytest

from popu.config import Engine, Vllm
from popu.engine.vllm_settings import environment, room_for
from popu.errors import ConfigError


def test_room_for_ranks():
    assert [room_for(rank) for rank in (1, 2, 8, 9, 32, 257, 512)] == [1, 8, 8, 16, 32, 320, 512]


def test_several_copies_share_the_visible_devices(monkeypatch):
    wanted = Engine(kind="vllm", threads=8, vllm=Vllm(data_parallel=2, tensor_parallel=2))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [environment(wanted, i)["CUDA_VISIBLE_DEVICES"] for i in (0, 1)] == ["4,5", "6,7"]
    assert environment(wanted, 0)["OMP_NUM_THREADS"] == "4"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert environment(wanted, 1)["CUDA_VISIBLE_DEVICES"] == "2,3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with pytest.raises(
        ConfigError, match="expected 4 devices for data_parallel 2 and tensor_parallel 2, found .*0,1,2"
    ):
        environment(wanted, 0)
