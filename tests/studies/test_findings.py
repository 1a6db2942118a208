"""Findings: everything once, and the same as its parts say."""

from klip.studies.across import records
from klip.studies.findings import find
from klip.studies.identities import comparisons
from klip.studies.reading import read_study
from klip.studies.study import Study
from klip.studies.tables import differences, finals
from tests.studies.folders import make_pooled


def test_findings_are_what_the_parts_say(tmp_path):
    study = read_study(make_pooled(tmp_path))
    found = find(study)
    assert [row.mean for row in found.finals] == [row.mean for row in finals(study)]
    assert [d.final for d in found.differences] == [d.final for d in differences(study)]
    assert [c.verdict for c in found.comparisons] == [c.verdict for c in comparisons(study)]
    assert records(found.across)
    hopper = [row.variant.label for row in found.of("Hopper-v4")]
    assert hopper == [variant.label for variant in study.of("Hopper-v4")]


def test_an_empty_study_has_no_findings():
    found = find(Study(()))
    assert (found.finals, found.table_1, found.sweeps, found.across) == ((), {}, (), None)
