"""Nobody but the page itself gets an answer, and every answer is sealed."""

from __future__ import annotations

import pytest

from tests.ui.asking import Asker
from tests.ui.conftest import PORT, TOKEN

PATHS = ("/", "/page/main.js", "/api/runs", "/report?run=first", "/nowhere")


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(stranger: Asker, path: str) -> None:
    assert stranger.get(path).status_code == 403
    assert stranger.get(path, headers={"Cookie": f"sfumato-{PORT}=guess"}).status_code == 403
    assert stranger.get(path, headers={"Cookie": "\x01;;="}).status_code == 403


def test_the_token_becomes_a_cookie_that_no_script_and_no_other_site_can_use(stranger: Asker) -> None:
    answer = stranger.get("/", params={"token": TOKEN})
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert stranger.get("/", params={"token": "guess"}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"0.0.0.0:{PORT}", ""]
)
def test_another_name_of_this_machine_is_refused(client: Asker, host: str) -> None:
    assert client.get("/api/runs", headers={"Host": host}).status_code == 421
    assert client.get("/", params={"token": TOKEN}, headers={"Host": host}).status_code == 421


def test_its_two_names_are_known(client: Asker) -> None:
    assert client.get("/api/runs", headers={"Host": f"localhost:{PORT}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://127.0.0.1:{PORT}"},
        {"Origin": f"http://127.0.0.1:{PORT + 1}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_get_nothing(client: Asker, headers: dict[str, str]) -> None:
    answer = client.get("/api/runs", headers=headers)
    assert answer.status_code == 403 and "first" not in answer.text


def test_the_page_itself_is_answered(client: Asker) -> None:
    own = {"Origin": f"http://127.0.0.1:{PORT}", "Sec-Fetch-Site": "same-origin"}
    assert client.get("/api/runs", headers=own).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(client: Asker, method: str) -> None:
    assert client.request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_sealed_and_allows_no_other_origin(client: Asker, path: str) -> None:
    headers = client.get(path, headers={"Origin": f"http://127.0.0.1:{PORT}"}).headers
    assert (
        "default-src 'none'" in headers["content-security-policy"]
        and "frame-ancestors 'self'" in headers["content-security-policy"]
    )
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_there_are_no_pages_of_the_framework(client: Asker, path: str) -> None:
    assert client.get(path).status_code == 404  # they would load scripts from elsewhere
