"""The picture of a comparison: an interval against seeds."""

import numpy as np

from klip.draw.as_matplotlib import drawn
from klip.draw.as_plotly import charts
from klip.draw.closing import closing
from klip.draw.panel import Guide, Line
from klip.studies.compare import Answers
from tests.studies.test_compare import answered, asked


def test_every_pair_has_a_panel_whose_interval_closes(tmp_path):
    found = answered(asked("clip", "is", "per-sample", max_seeds=13), tmp_path)
    picture = closing(found)
    assert [(p.title, p.about) for p in picture.panels] == [
        ("is against clip", "open"),
        ("per-sample against clip", "equivalent"),
    ]
    (line,) = [m for m in picture.panels[0].marks if isinstance(m, Line)]
    assert line.x.tolist() == [6, 8, 10, 13]
    assert np.isnan(line.low[0])  # six seeds bound nothing for two pairs
    width = (line.high - line.low)[1:]
    assert (np.diff(width) < 0).all()
    zero, above, below = [m for m in picture.panels[0].marks if isinstance(m, Guide)]
    assert zero.at == 0
    assert above.at == -below.at > 0
    assert zero.look != above.look == below.look  # the legend must tell them apart
    assert len(dict(charts(picture))) == 2
    assert len(drawn(picture).axes) == 2


def test_before_the_first_look_there_is_nothing_to_draw():
    question = asked("clip", "is")
    (panel,) = closing(Answers(question, question.pairs, "budget")).panels
    assert (panel.marks, panel.about) == ((), "open")
