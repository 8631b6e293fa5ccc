"""The parts of inline SVG: what they write, what they escape, and an axis that never divides by nothing."""

from frontend.figures.svg import Axis, dot, element, label, padded, text


def test_an_element_writes_lengths_to_a_tenth_and_leaves_out_what_is_none() -> None:
    written = dot(1.26, 2.0, 3.4, fill="red", stroke=None)
    assert str(written) == '<circle cx="1.3" cy="2" r="3.4" fill="red"/>'


def test_words_and_attributes_are_escaped_and_markup_is_not() -> None:
    assert str(text(0, 0, "<b>")) == '<text x="0" y="0">&lt;b&gt;</text>'
    assert str(element("path", d='"><script>')) == '<path d="&#34;&gt;&lt;script&gt;"/>'
    assert str(element("svg", element("g"))) == "<svg><g/></svg>"


def test_python_names_of_attributes_become_those_of_svg() -> None:
    assert 'class="lb" text-anchor="end"' in str(label(0, 0, "x", text_anchor="end"))


def test_an_axis_holds_its_ends_whichever_way_it_runs() -> None:
    up = Axis(10.0, 20.0, 100, 0)
    assert [up(value) for value in up.ticks(3)] == [100, 50, 0]


def test_a_flat_series_still_has_room_around_it() -> None:
    assert padded([5.0, 5.0], 0.06) == (4.95, 5.05)
    assert padded([0.0], 0.06) == (-1.0, 1.0)
