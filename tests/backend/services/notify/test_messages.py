"""The words of messages."""

from backend.services.notify.messages import MessageSection, of_digest, of_test


def test_what_strangers_wrote_is_no_markup_and_mentions_nobody() -> None:
    lines = (("<!here> @channel **bold** [x](http://evil.example) hthttp://tp://evil.example `code`", ""),)
    written = of_test("demo/loom", lines[0][0], "http://t.example")
    for word in ("<!here>", "@channel", "**bold**", "[x]", "http://evil", "`"):
        assert word not in written.title and word not in written.markdown.partition("\n")[0]
    assert "<!here>" not in written.html


def test_a_digest_leaves_out_empty_lists_and_shortens_long_ones() -> None:
    many = tuple((f"R-{number}", f"http://t.example/{number}") for number in range(25))
    sections = [MessageSection(title="Regressed", lines=many), MessageSection(title="Fixed", lines=())]
    written = of_digest("demo/loom", "daily digest", sections, "http://t.example")
    assert "- [R-19](http://t.example/19)" in written.markdown and "- and 5 more" in written.markdown
    assert "Fixed" not in written.markdown and 'href="http://t.example/19"' in written.html
    assert "Nothing changed" in of_digest("demo/loom", "daily digest", [], "http://t.example").markdown
