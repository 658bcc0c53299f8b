"""Layouts, splitters, the size of the window."""

from bench import behaviour


@behaviour
def number_keys_show_the_layouts_and_f_one_panel_alone(bench):
    first = {"1": "attention-map", "2": "recall", "3": "quest-bounds", "4": "layer-map", "5": "results"}
    with bench.look_at(bench.verifier, bench.draft) as window:
        for key, panel in [*first.items(), ("1", "attention-map")]:
            window.key(key)
            window.wait_until(lambda s, p=panel: p in s["areas"], f"panel {panel}")
            state = window.settle()
            assert state["notices"] == [], state["notices"]
            width, height = state["input"]["size"]
            for name, (x, y, w, h) in state["areas"].items():
                assert x >= 0 and y >= 0 and x + w <= width and y + h <= height, f"{name} is cut by the window"
            assert window.picture().colours() > 50, f"layout {key} looks empty"
        wide = window.area("attention-map")[2]
        window.key("f")
        state = window.wait_until(lambda s: s["layout"]["maximised"] == "attention-map", "the map alone")
        assert list(state["areas"]) == ["attention-map"] and state["areas"]["attention-map"][2] > 1.3 * wide
        window.key("f")
        window.wait_until(lambda s: s["layout"]["maximised"] == "" and len(s["areas"]) == 4, "the layout again")
        window.click_at("layout budget")
        window.wait_until(lambda s: s["layout"]["name"] == "budget", "the layout clicked")
        for key, panels in (("7", {"tokens", "why"}), ("8", {"heads", "tokens"})):
            window.key(key)
            window.wait_until(lambda s, p=panels: set(s["areas"]) == p, f"panels {panels}")


@behaviour
def dragged_splitter_changes_the_shares_and_is_remembered(bench):
    def share(state):
        return state["layout"]["arrangement"]["parts"][0]["share"]

    with bench.look_at() as window:
        left, right = window.area("attention-map"), window.area("query-selection")
        before = share(window.state())
        bar = ((left[0] + left[2] + right[0]) / 2, left[1] + left[3] / 2)
        window.drag(bar, (bar[0] - 150, bar[1]))
        dragged = share(window.wait_until(lambda s: share(s) < before - 0.05, "a narrower map"))
        window.settle()
        assert abs(window.area("attention-map")[2] - (left[2] - 150)) <= 6
        assert window.quit() == 0
    with bench.look_at() as window:
        assert share(window.state()) == dragged, "the share was forgotten"
        window.key("ctrl", "0")
        window.wait_until(lambda s: share(s) == before, "the layout as it was made")


@behaviour
def panels_follow_the_size_of_the_window(bench):
    with bench.look_at() as window:
        for width, height in [(1024, 768), (1900, 1150), (400, 300), (1280, 800)]:
            window.screen.do(f"windowsize {window.window} {width} {height}")
            window.wait_until(lambda s, w=width, h=height: s["input"]["size"] == [w, h], f"size {width}x{height}")
            state = window.settle()
            for name, (x, y, w, h) in state["areas"].items():
                assert x + w <= width + 1 and y + h <= height + 1, f"{name} is cut at {width}x{height}"
            assert window.picture().colours() > 50, f"nothing to see at {width}x{height}"
