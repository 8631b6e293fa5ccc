"""Where a message can be posted to, and what is seen of its address."""

import pytest

from backend.services.notify.post import AddressNotAccepted, Letter, post, shown_address


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("jsons://ada:secret@example.org/hidden?token=secret", "jsons://example.org/…"),
        ("ntfys://secret-topic", "ntfys://…"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#perf", "slack://T...2/A...D/T...Q/%23perf/"),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    assert shown_address(address) == shown


@pytest.mark.parametrize(
    "address", ["dbus://", "file:///etc/passwd", "syslog://", "https://example.org", "json", "slack://x"]
)
def test_an_address_of_anything_but_the_known_services_is_refused(address: str) -> None:
    with pytest.raises(AddressNotAccepted):
        shown_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "workflow://127.0.0.1:9/aaaabbbbcccc/ddddeeee?template=/etc/card.json",
        "workflow://127.0.0.1:9/aaaabbbbcccc/ddddeeee?%54emplate=file:///etc/card.json",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#perf?template=http://169.254.169.254/",
        "mailto://ada:secret@example.org?pgp=sign&pgpprv=/etc/key.asc",
    ],
)
def test_an_address_that_has_files_of_this_machine_read_is_refused(address: str) -> None:
    with pytest.raises(AddressNotAccepted, match="is not accepted: an address may not read files"):
        shown_address(address)
    assert post(Letter(address=address, title="t", markdown="m", html="m")).is_refused


@pytest.mark.parametrize(
    "address",
    [
        *(f"json://{host}:9/x" for host in ("127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1")),
        *(f"mailto://{host}:9?from=a@b.org&to=c@b.org" for host in ("127.0.0.1", "localhost", "10.0.0.1")),
    ],
)
def test_the_process_that_posts_connects_to_nothing_that_is_not_public(address: str) -> None:
    posted = post(Letter(address=address, title="t", markdown="m", html="m"))
    assert posted.is_refused and "not public" in posted.error
