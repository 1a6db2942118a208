"""A dead link, a missing place and a thing from elsewhere are each found."""

from checking import trouble


def site(folder, body):
    (folder / "other.html").write_text('<h1 id="there">x</h1>')
    (folder / "index.html").write_text(f'<html><body><p id="here">{body}</p></body></html>')
    return trouble(folder)


def test_what_is_fine_is_fine(tmp_path):
    fine = '<a href="#here"></a><a href="other.html#there"></a><a href="https://x.org/y"></a>'
    assert site(tmp_path, fine) == []


def test_each_kind_of_trouble_is_named(tmp_path):
    for body, why in {
        '<a href="gone.html"></a>': "index.html: gone.html is not there",
        '<a href="other.html#gone"></a>': "index.html: other.html#gone has no such place",
        '<a href="#gone"></a>': "index.html: #gone has no such place",
        '<img src="gone.png">': "index.html: gone.png is not there",
        '<script src="http://x.org/a"></script>': "index.html loads http://x.org/a from elsewhere",
        '<link href="//x.org/a.css">': "index.html loads //x.org/a.css from elsewhere",
        '<style>@import url("https://x.org/a");</style>': "index.html styles by https://x.org/a",
    }.items():
        assert site(tmp_path, body) == [why]
