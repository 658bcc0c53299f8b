"""Clicks, keys and typed numbers that change what is selected, and their undo."""

from bench import behaviour, selects


@behaviour
def keys_step_and_ctrl_z_goes_back(bench):
    with bench.look_at() as window:
        start = window.state()
        query = start["selection"]["query"]
        for keys, wanted in [(["l"], {"layer": 1}), (["l"], {"layer": 2}), (["shift", "l"], {"layer": 1}), (["h"], {"q_head": 1}),
                             (["shift", "q"], {"query": query - 1}), (["q"], {"query": query})]:
            window.key(*keys)
            selects(window, "+".join(keys), **wanted)
        window.key("m")
        window.wait_until(lambda s: s["selection"]["selector"] != start["selection"]["selector"], "another method")
        window.key("shift", "b")
        window.wait_until(lambda s: s["parameters"]["budget"] == 128, "half the budget")
        window.key("b")
        last = window.wait_until(lambda s: s["parameters"]["budget"] == 256, "the budget doubled")
        for _ in range(10):
            state = window.state()
            if (state["selection"], state["parameters"]) == (start["selection"], start["parameters"]):
                break
            window.key("ctrl", "z")
        window.wait_until(lambda s: s["selection"] == start["selection"], "everything undone")
        for _ in range(10):
            window.key("ctrl", "y")
        state = window.wait_until(lambda s: s["selection"] == last["selection"], "everything done again")
        assert state["parameters"] == last["parameters"]


@behaviour
def typed_layer_and_token_position_become_the_selection(bench):
    with bench.look_at() as window:
        window.click_at("layer")
        window.type_and_enter("5")
        selects(window, "a typed layer", layer=5)
        window.click_at("query")
        window.type_and_enter("100")
        selects(window, "a typed query", query=100)
        window.click_at("layer")
        window.type_and_enter("999")
        selects(window, "a layer beyond the last", layer=7)


@behaviour
def keys_typed_into_a_field_are_no_shortcuts(bench):
    with bench.look_at() as window:
        window.click_at("layer")
        window.type("lhqt")
        window.key("Escape")
        state = window.settle()
        assert state["selection"]["layer"] == 0 and state["selection"]["q_head"] == 0 and state["theme"] == "light"


@behaviour
def dragged_slider_changes_the_budget_as_one_step_of_undo(bench):
    with bench.look_at() as window:
        before = window.state()["parameters"]["budget"]
        x, y = window.place("budget")
        window.drag((x, y), (x - 40, y))
        dragged = window.wait_until(lambda s: s["parameters"]["budget"] < before, "a smaller budget")["parameters"]["budget"]
        assert 1 <= dragged < before
        window.settle()
        window.key("ctrl", "z")
        window.wait_until(lambda s: s["parameters"]["budget"] == before, "the budget of before")
