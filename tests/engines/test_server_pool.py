"""Which server takes a request, and for how long one is left out, on a clock of its own."""

from __future__ import annotations

import asyncio

from evalkit.engines.openai.server_pool import LONGEST_REST, Server, ServerPool


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def pool_of(count, clock):
    servers = [Server(f"http://{i}", None) for i in range(count)]
    return ServerPool(servers, max_requests=2000, max_tokens=10**9, clock=clock)


def test_requests_that_break_together_are_one_failure():
    clock = Clock()
    pool = pool_of(1, clock)
    server = pool.servers[0]
    for _ in range(1500):  # as many as were under way when the server fell
        pool.failed(server)
    assert server.rests_until == 1.0


def test_rests_double_up_to_the_longest_however_long_a_server_is_away():
    clock = Clock()
    pool = pool_of(1, clock)
    server, rests = pool.servers[0], []
    for _ in range(1200):
        pool.failed(server)
        rests.append(server.rests_until - clock.now)
        clock.now = server.rests_until
    assert rests[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert rests[-1] == LONGEST_REST
    pool.answered(server)
    pool.failed(server)
    assert server.rests_until - clock.now == 1.0


def test_a_server_that_rests_is_asked_only_if_all_do():
    clock = Clock()
    pool = pool_of(2, clock)
    first, second = pool.servers
    pool.failed(first)
    assert asyncio.run(pool.acquire(1)) is second
    pool.failed(second)
    clock.now = 0.5
    assert asyncio.run(pool.acquire(1)) is first
