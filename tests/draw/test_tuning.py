"""The picture of a search: importance, and a panel for each knob."""

import numpy as np
import pytest

from klip.draw.as_matplotlib import drawn
from klip.draw.as_plotly import charts
from klip.draw.panel import Dots, Guide, Line, Whisker
from klip.draw.tuning import sensitivity
from klip.studies.tuning import Tried, Tuned
from tests.studies.test_tuning import asked

OVER = ["lr=1e-5..1e-2", "eps", "epochs", "activation", "log_std=-1..0.5"]


def tuned(count=30):
    question = asked(OVER)
    rng, trials = np.random.default_rng(0), []
    for _ in range(count):
        knobs = {
            "lr": float(10 ** rng.uniform(-5, -2)),
            "eps": float(rng.uniform(0.05, 0.8)),
            "epochs": int(rng.choice([1, 3, 5, 10, 20])),
            "activation": str(rng.choice(["tanh", "relu", "elu", "swish"])),
            "log_std": float(rng.uniform(-1, 0.5)),
        }
        score = float(knobs["epochs"] + rng.normal())
        trials.append(Tried(knobs, score, (score,)))
    return Tuned(question, tuple(trials), {"epochs": 0.7, "lr": 0.3})


@pytest.mark.parametrize("count", [1, 5, 30])
def test_every_knob_has_a_panel_and_both_renderers_draw_it(count):
    made = tuned(count)
    picture = sensitivity(made)
    assert [panel.title for panel in picture.panels] == ["Importance", "lr", "eps", "epochs",
                                                         "activation", "log_std"]  # fmt: skip
    for panel in picture.panels[1:]:
        (dots,) = [mark for mark in panel.marks if isinstance(mark, Dots)]
        assert len(dots.x) == count
        (guide,) = [mark for mark in panel.marks if isinstance(mark, Guide)]
        assert guide.at == dots.x[int(np.argmax(dots.y))]
        if panel.x.ticks:
            assert len(panel.x.ticks) <= 5
    assert len(dict(charts(picture))) == 6
    assert len(drawn(picture).axes) == 6


def test_importance_and_the_middle_of_scores():
    importance, lr, _, epochs, activation, _ = sensitivity(tuned()).panels
    assert [(mark.label, mark.estimate) for mark in importance.marks] == [("epochs", 0.7),
                                                                          ("lr", 0.3)]  # fmt: skip
    assert lr.x.log
    (line,) = [mark for mark in epochs.marks if isinstance(mark, Line)]
    np.testing.assert_allclose(line.y, [1, 3, 5, 10, 20], atol=3)
    assert ((line.low <= line.y) & (line.y <= line.high)).all()
    assert sum(isinstance(mark, Whisker) for mark in activation.marks) == 4, "words have no order"


def test_a_search_that_tells_nothing_apart():
    made = tuned()
    (panel, *_) = sensitivity(Tuned(made.question, made.trials, {})).panels
    assert (panel.marks, panel.about) == ((), "trials do not tell knobs apart")
