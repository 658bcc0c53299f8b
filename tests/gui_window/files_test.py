"""Opening, saving, exporting, and files that are missing, damaged or deleted."""

import csv
import shutil

from bench import behaviour, says, selects


@behaviour
def start_page_offers_to_open_and_the_dialog_opens_what_is_typed(bench):
    with bench.start() as window:
        state = window.settle()
        assert state["traces"] == [] and state["notices"] == []
        assert window.picture().colours() > 20, "an empty window"
        window.open_file(bench.verifier)
        state = window.wait_until(lambda s: len(s["traces"]) == 1, "the trace")
        assert state["traces"][0]["path"] == str(bench.verifier)
        state = window.settle()
        assert "attention-map" in state["areas"] and state["notices"] == []


@behaviour
def escape_leaves_the_dialog_as_if_nothing_had_been(bench):
    with bench.look_at() as window:
        window.key("ctrl", "o")
        window.type("zzz")
        window.key("Escape")
        window.key("l")
        state = selects(window, "L after Escape", layer=1)
        assert len(state["traces"]) == 1


@behaviour
def wrong_and_damaged_files_give_a_sentence_and_lose_nothing(bench):
    words = bench.folder / "words.h5"
    words.write_text("these are words, no trace\n" * 50)
    damaged = bench.folder / "damaged.h5"
    damaged.write_bytes(bench.verifier.read_bytes()[:100_000])
    with bench.look_at() as window:
        before = window.state()["selection"]
        for n, file in enumerate([words, damaged], start=1):
            window.open_file(file)
            sentence = says(window, file.name)
            state = window.settle()
            assert len(state["notices"]) == n and len(sentence) > len(str(file)) + 10
            assert len(state["traces"]) == 1 and state["selection"] == before
        window.click_at("dismiss 0")
        window.wait_until(lambda s: len(s["notices"]) == 1, "one notice less")
        window.key("l")
        selects(window, "L after the failures", layer=1)


@behaviour
def file_deleted_while_open_gives_a_sentence_and_stays_in_sight(bench):
    copy = bench.folder / "copy.h5"
    shutil.copy(bench.verifier, copy)
    with bench.look_at(copy) as window:
        copy.unlink()
        says(window, "copy.h5")
        state = window.settle()
        assert len(state["traces"]) == 1
        window.key("l")
        selects(window, "L after the deletion", layer=1)
        window.settle()


@behaviour
def saved_session_opens_again(bench):
    file = bench.folder / "look.json"
    with bench.look_at(bench.verifier, bench.draft) as window:
        window.key("3")
        window.key("l")
        window.key("shift", "b")
        window.key("ctrl", "shift", "t")
        selects(window, "L", layer=1)
        window.key("ctrl", "s")
        window.type_and_enter(str(file))
        window.wait_until(lambda s: file.exists(), "the session file")
        saved = window.settle()
    with bench.start("--session", file, name="again") as again:
        again.wait_until(lambda s: len(s["traces"]) == 2, "both traces of the session")
        state = again.settle()
        for part in ("traces", "selection", "parameters", "layout", "theme", "panels"):
            assert state[part] == saved[part], f"{part}: {state[part]}, was {saved[part]}"


@behaviour
def exported_csv_holds_the_hovered_value(bench):
    with bench.look_at() as window:
        x, y, w, h = window.area("attention-map")
        window.move(x + 0.3 * w, y + 0.6 * h)
        hover = window.wait_until(lambda s: "weight" in s["hover"], "the weight under the mouse")["hover"]
        query, key = (int(hover[name].split()[0]) for name in ("query", "key"))
        window.click(x + 0.3 * w, y + 0.6 * h)
        selects(window, "a click into the map", query=query, key=key)
        window.settle()
        window.key("ctrl", "e")
        window.click_at("format csv")
        window.click_at("export folder")
        window.key("ctrl", "a")
        window.type(str(bench.folder))
        window.click_at("export name")
        window.type_and_enter("map")  # Enter exports
        file = bench.folder / "map.csv"
        window.wait_until(lambda s: file.exists(), "the exported table")
        window.settle()
    with open(file, newline="") as text:
        rows = [row for row in csv.DictReader(text) if row["mark"] == "cell"]
    here = [float(row["value"]) for row in rows if abs(float(row["x"]) - key) < 0.51 and abs(float(row["y"]) - query) < 0.51]
    assert here, f"no cell of query {query}, key {key} among {len(rows)}"
    shown = float(hover["weight"])
    assert any(abs(value - shown) <= 2e-3 * abs(shown) for value in here), f"hover says {shown}, the table {here}"
    assert list(bench.folder.glob("map*.json")), "no manifest"
