"""One episode: tokens in and out, endings, failures, clean-up, resume."""

import asyncio
import json

import pytest

from agentrl.errors import ConfigError, InfrastructureError
from agentrl.messages import Message, Status
from agentrl.rollout.agent_loop import AgentEpisode, EpisodeSettings, EpisodeState, run_episode
from agentrl.rollout.cross_policy import PolicyPool
from agentrl.rollout.rendering import create_renderer, render
from agentrl.rollout.tokenizer import train_tokenizer
from agentrl.tasks.base import Sample, Step, call_message
from tests.fakes import SAY, EchoTask, FakeClient, FakeEngine, fails_on

SAMPLE = Sample("echo", "train", 7)


@pytest.fixture(scope="module")
def renderer():
    texts = ["Say 7 You said stop a b c", "No tool call found. Answer with one tool call."] * 3
    return create_renderer("compact", train_tokenizer(texts, [SAY], 600), [SAY])


@pytest.fixture
def say(renderer):
    """Ids of a completion that says `text`, stop token included."""

    def ids(text: str) -> list[int]:
        rendered = render(renderer, [call_message("say", {"text": text})])
        return [
            token
            for token, sampled in zip(rendered.token_ids, rendered.sampled_mask, strict=True)
            if sampled
        ]

    return ids


def play(renderer, client, script, **options):
    engine = FakeEngine(script, **options.pop("engine", {}))
    settings = EpisodeSettings(renderer, **options)
    return engine, run_episode(client, PolicyPool({"current": engine}), settings, SAMPLE, seed=3)


async def test_tokens_are_what_was_prompted_and_sampled(renderer, say):
    script = lambda prompt, turn, session: say(["a b", "stop"][turn])  # noqa: E731
    engine, run = play(renderer, FakeClient(), script)
    got = await run
    assert renderer.encoder.decode(got.token_ids) == (
        '<bos><user>Say 7<assistant>{"name":"say","arguments":{"text":"a b"}}<end>'
        '<user>You said a b<assistant>{"name":"say","arguments":{"text":"stop"}}<end>'
    )
    second_prompt = engine.requests[1][1]
    assert got.token_ids.tolist() == second_prompt + say("stop")  # byte for byte (pitfall 1)
    assert got.token_ids[got.loss_mask].tolist() == say("a b") + say("stop")
    # the fake's log-probability names its token, so the columns cannot be shifted (pitfall 7)
    sampled = got.loss_mask
    assert got.behaviour_logprobs[sampled] == pytest.approx(-got.token_ids[sampled] / 1000)
    assert (got.behaviour_logprobs[~sampled] == 0).all()
    assert (got.policy_version[~sampled] == -1).all() and (got.policy_role[~sampled] == -1).all()
    first = len(engine.requests[0][1]) + len(say("a b"))
    assert got.turn.tolist() == [0] * first + [1] * (len(got.token_ids) - first)
    assert (got.status, got.reward, got.error) == (Status.COMPLETED, 1.0, None)
    assert got.metrics == {
        "invalid_calls": 0, "turns": 2, "success": 1, "reward": 1, "truncated_turns": 0,
        "sampled_tokens": len(say("a b") + say("stop")),
    }  # fmt: skip


async def test_nothing_changes_when_messages_are_edited_afterwards(renderer, say):
    """Pitfall 1: tokens do not come from the messages."""
    _, run = play(renderer, FakeClient(), lambda p, turn, s: say(["a", "stop"][turn]))
    got = await run
    before = got.token_ids.copy()
    for turn in got.turns:
        turn.assistant.pop("tool_calls")
    assert got.token_ids.tolist() == before.tolist()


async def test_each_turn_is_stamped_with_the_version_that_sampled_it(renderer, say, tmp_path):
    """Pitfall 27: weights arrive between turns 2 and 3."""
    engine = FakeEngine(lambda p, turn, s: say("abc"[turn] if turn < 2 else "stop"), version=4)

    def update(verb, session):
        if verb == "interact" and client.calls.count(("interact", session)) == 2:
            engine.version = 5

    client = FakeClient(before=update)
    got = await run_episode(
        client, PolicyPool({"current": engine}), EpisodeSettings(renderer), SAMPLE, seed=3
    )
    by_turn = [set(got.policy_version[got.loss_mask & (got.turn == t)]) for t in range(3)]
    assert by_turn == [{4}, {4}, {5}]
    assert got.oldest_version == 4


async def test_a_cut_off_turn_is_flagged_and_its_close_is_the_environments(renderer, say):
    """Pitfalls 2 and 10: finish_reason travels; a missing stop token gets mask 0."""
    script = lambda p, turn, s: say("a b")[:3] if turn == 0 else say("stop")  # noqa: E731
    engine, run = play(
        renderer, FakeClient(), script, engine={"finish": lambda t: "length" if t == 0 else "stop"}
    )
    got = await run
    end = renderer.get_stop_token_ids()[0]
    place = len(engine.requests[0][1]) + 3
    assert got.token_ids[place] == end and not got.loss_mask[place]
    assert got.turns[0].finish_reason == "length" and got.metrics["truncated_turns"] == 1
    assert got.turns[0].replies[0]["content"] == "The arguments of say are not valid JSON."
    assert got.metrics["invalid_calls"] == 1 and got.reward == 1.0  # pitfall 41: a win is a win


async def test_the_token_limit_ends_the_episode_with_reward_0(renderer, say):
    engine, run = play(renderer, FakeClient(), lambda p, t, s: say("a"), max_total_tokens=40)
    got = await run
    assert (got.status, got.reward) == (Status.CONTEXT_LIMIT, 0.0)
    assert len(got.token_ids) <= 40 and got.metrics["success"] == 0.0
    allowed = [sampling.max_new_tokens for _, _, sampling, _ in engine.requests]
    prompts = [len(prompt) for _, prompt, _, _ in engine.requests]
    assert all(new == min(48, 40 - n) for new, n in zip(allowed, prompts, strict=True))


async def test_an_opening_that_does_not_fit_samples_nothing(renderer, say):
    client = FakeClient()
    engine, run = play(renderer, client, lambda p, t, s: say("a"), max_total_tokens=3)
    got = await run
    assert (got.status, got.reward, len(got.token_ids)) == (Status.CONTEXT_LIMIT, 0.0, 0)
    assert engine.requests == [] and client.live == {}


@pytest.mark.parametrize("verb, turns", [("start", 0), ("interact", 1)])
async def test_a_broken_environment_is_a_record_without_reward(renderer, say, verb, turns):
    client = FakeClient(before=fails_on(verb, 1))
    engine, run = play(renderer, client, lambda p, t, s: say("a"))
    got = await run
    assert (got.status, got.reward, got.error) == (Status.TASK_ERROR, None, f"{verb} broke")
    assert len(got.turns) == turns and "reward" not in got.metrics
    assert client.live == {} and engine.released


async def test_an_engine_failure_is_a_record_too(renderer, say):
    def fail(turn):
        if turn == 1:
            raise InfrastructureError("engine gone")

    client = FakeClient()
    _, run = play(renderer, client, lambda p, t, s: say("a"), engine={"fail": fail})
    got = await run
    assert (got.status, got.error) == (Status.TASK_ERROR, "engine gone")
    assert client.live == {}


async def test_a_lost_session_is_infrastructure_and_a_bug_is_raised(renderer, say):
    client = FakeClient(before=fails_on("interact", 1, KeyError(1)))
    _, run = play(renderer, client, lambda p, t, s: say("a"))
    assert (await run).status is Status.TASK_ERROR
    client = FakeClient(before=fails_on("interact", 1, TypeError("our bug")))
    engine, run = play(renderer, client, lambda p, t, s: say("a"))
    with pytest.raises(TypeError, match="our bug"):
        await run
    assert client.live == {} and engine.released


async def test_an_infrastructure_status_of_the_environment_has_no_reward(renderer, say):
    class Dying(EchoTask):
        async def start(self, sample, seed):
            episode = await super().start(sample, seed)
            ending = Step((), 0.0, True, Status.CANCELLED, {"turns": 1.0})
            episode.step = lambda message: asyncio.sleep(0, ending)
            return episode

    _, run = play(renderer, FakeClient(Dying()), lambda p, t, s: say("a"))
    got = await run
    assert (got.status, got.reward) == (Status.CANCELLED, None)


async def test_nothing_stays_open_whatever_happens(renderer, say):
    """Pitfall 39: 60 episodes, a third cancelled at different points, a third failing."""
    count = 0

    def before(verb, session):
        nonlocal count
        count += 1
        if verb == "interact" and count % 5 == 0:
            raise InfrastructureError("now and then")

    client = FakeClient(before=before, pauses=2)
    engine = FakeEngine(lambda p, t, s: say("stop" if t == 2 else "a"))
    pool, settings = PolicyPool({"current": engine}), EpisodeSettings(renderer)
    tasks = [
        asyncio.create_task(run_episode(client, pool, settings, SAMPLE, seed=i)) for i in range(60)
    ]
    cancelled = 0
    for number in range(20):
        await asyncio.sleep(0)
        cancelled += tasks[3 * number].cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(end, asyncio.CancelledError) for end in ends) == cancelled > 9
    assert client.live == {}
    assert all(episode.closed for episode in client.task.started)


async def test_a_failing_cancel_does_not_lose_the_trajectory(renderer, say):
    client = FakeClient(before=fails_on("cancel", 1))
    _, run = play(renderer, client, lambda p, t, s: say("stop"))
    assert (await run).reward == 1.0


async def test_cross_policy_turns_carry_their_role(renderer, say):
    engines = {
        "current": FakeEngine(lambda p, t, s: say("a"), version=9),
        "stale": FakeEngine(lambda p, t, s: say("b"), version=3),
    }
    pool = PolicyPool(engines, stale_ratio=0.5)
    settings = EpisodeSettings(renderer)
    got = await run_episode(FakeClient(), pool, settings, SAMPLE, seed=11)
    drawn = [pool.draw(11, turn) for turn in range(5)]
    assert {"current", "stale"} == set(drawn) == set(got.roles)
    assert [turn.role for turn in got.turns] == drawn
    for turn, role in enumerate(drawn):
        spoken = got.loss_mask & (got.turn == turn)
        assert set(got.policy_version[spoken]) == {engines[role].version}
        assert set(got.policy_role[spoken]) == {got.roles.index(role)}
    checked = EpisodeSettings(renderer, validation=True)
    alone = await run_episode(FakeClient(), pool, checked, SAMPLE, seed=11)
    assert {turn.role for turn in alone.turns} == {"current"}


async def test_resume_at_every_point_gives_the_unbroken_trajectory(renderer, say):
    """Invariant 9: the state is taken at every step of the event loop, written as JSON, and an
    episode in a fresh environment goes on from it."""
    words = ["a", "b c", "stop"]

    def start(client, state=None):
        # a scripted engine counts turns from its own start: the prompt tells which one it is
        script = lambda p, t, s: say(words[p.count(renderer.get_stop_token_ids()[0])])  # noqa: E731
        pool = PolicyPool({"current": FakeEngine(script)})
        episode = AgentEpisode(
            client, pool, EpisodeSettings(renderer), SAMPLE, seed=5, group_id=2, member=1,
            session=17, state=state,
        )  # fmt: skip
        return episode

    whole = await start(FakeClient()).run()
    episode = start(FakeClient(pauses=1))
    task = asyncio.create_task(episode.run())
    states = []
    while not task.done():
        states.append(json.dumps(episode.state().to_dict()))
        await asyncio.sleep(0)
    assert len(set(states)) >= 7  # before the opening, then asking and told, three times
    for text in dict.fromkeys(states):
        state = EpisodeState.from_dict(json.loads(text))
        assert json.dumps(state.to_dict()) == text
        again = await start(FakeClient(), state).run()
        assert again.token_ids.tolist() == whole.token_ids.tolist()
        assert again.behaviour_logprobs.tolist() == whole.behaviour_logprobs.tolist()
        assert [t.assistant for t in again.turns] == [t.assistant for t in whole.turns]
        assert again.metrics == whole.metrics and again.key == (2, 1)
        assert await _is_stable(start(FakeClient(), state))


async def _is_stable(episode):
    """A state taken before a resumed episode has run is the state it came from."""
    return episode.state().to_dict() == episode.state().to_dict()


async def test_a_partial_completion_is_handed_back_to_its_engine(renderer, say):
    whole = say("a b c")
    engine = FakeEngine(lambda p, t, s: whole if t == 0 else say("stop"), version=8)
    client = FakeClient()
    first = AgentEpisode(
        client, PolicyPool({"current": engine}), EpisodeSettings(renderer), SAMPLE, seed=5
    )
    state = first.state()
    await first._start()
    state = first.state()
    state.role = "current"
    from agentrl.rollout.engine import Completion

    state.partial = Completion(whole[:2], [-0.5, -0.25], [6, 6], "length")
    got = await run_episode(
        FakeClient(), PolicyPool({"current": engine}), EpisodeSettings(renderer), SAMPLE, seed=5,
        resume=state,
    )  # fmt: skip
    first_turn = got.loss_mask & (got.turn == 0)
    assert got.token_ids[first_turn].tolist() == whole
    assert got.behaviour_logprobs[first_turn].tolist()[:2] == [-0.5, -0.25]
    assert got.policy_version[first_turn].tolist() == [6, 6] + [8] * (len(whole) - 2)


async def test_an_environment_that_answers_differently_is_noticed_on_resume(renderer, say):
    script = lambda p, t, s: say("a")  # noqa: E731
    episode = AgentEpisode(
        FakeClient(), PolicyPool({"current": FakeEngine(script)}), EpisodeSettings(renderer),
        SAMPLE, seed=5,
    )  # fmt: skip
    await episode.run()
    state = episode.state()
    state.turns[0].replies[0]["content"] = "You said something else"
    client = FakeClient()
    got = await run_episode(
        client, PolicyPool({"current": FakeEngine(script)}), EpisodeSettings(renderer), SAMPLE,
        seed=5, resume=state,
    )  # fmt: skip
    assert got.status is Status.TASK_ERROR and "on replay its reply differs" in got.error
    assert client.live == {}


async def test_text_that_cannot_be_encoded_is_made_safe(renderer, say):
    class Odd(EchoTask):
        async def start(self, sample, seed):
            episode = await super().start(sample, seed)
            episode.messages = (Message("user", "Say \ud800 7"),)
            return episode

    _, run = play(renderer, FakeClient(Odd()), lambda p, t, s: say("stop"))
    assert (await run).opening[0]["content"] == "Say ? 7"


def test_pool_names_the_setting_that_is_missing():
    with pytest.raises(ConfigError, match=r"rollout\.cross_policy\.stale_ratio"):
        PolicyPool({"current": FakeEngine(lambda p, t, s: [])}, stale_ratio=0.1)
