"""Pages of kvscope export in headless Chromium: they load without an error and without the network, hovering gives the numbers of
kvscope analyze attention-map and of kvscope explain, steps unfold, and all of them are printed.

    page_in_browser.py PROGRAM FOLDER

Exit code 77 (ctest: skipped), with the reason, without Chromium."""
import base64
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time


class Browser:
    """Chromium by its debugging protocol over two pipes: messages end with a zero byte."""

    def __init__(self, program, profile):
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "browser", program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--window-size=1500,1000", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.events, self.number, self.session = b"", [], 0, None

    def message(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.read_end, 1 << 16)
            if not piece:
                raise RuntimeError("the browser went away")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, address):
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=1400, height=1100, deviceScaleFactor=1, mobile=False)
        self.ask("Page.navigate", url=address)
        for _ in range(200):
            if self.value("document.readyState === 'complete' && !!window.kvscopePage"):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the page did not start: {self.complaints()}")

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def hover(self, x, y):
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def complaints(self):
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        found = [e["params"] for e in self.events if e["method"] in kinds]
        return found + [e["params"] for e in self.events
                        if e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] in ("error", "warning", "assert")]

    def requests(self):
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self):
        try:
            self.session = None
            self.ask("Browser.close")
        except (RuntimeError, OSError):
            pass
        self.process.wait(20)


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def cells_of(program, trace, folder, layer, head, n_cells, block):
    """The analysis's map of a head as {(query cell, key cell): weight}, from the numbers of its figure."""
    out = folder / "map.h5"
    run(program, "analyze", "attention-map", trace, "--layers", layer, "--heads", head, "--max-cells", n_cells, "--out", out)
    run(program, "figure", "attention-map", out, "--out", folder / "figure", "--format", "svg")
    cells = {}
    with open(folder / "figure" / "attention-map.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["mark"] == "cell":
                cells[int(float(row["y"]) // block), int(float(row["x"]) // block)] = float(row["value"])
    return cells


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    chromium = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    if not chromium:
        print("skipped: there is no Chromium (Debian: apt-get install chromium)")
        return 77
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    trace, page = folder / "t.h5", folder / "a page.html"
    run(program, "record", trace, "--max-tokens", 300, "--decode", 4)
    said = json.loads(run(program, "export", "--html", trace, "--out", page, "--max-cells", 100, "--json"))
    assert said["block"] == 4 and said["cells"] == 76, said
    exact = cells_of(program, trace, folder, 2, 3, 100, said["block"])
    session = write_session(program, trace, folder)
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(chromium, profile)
        try:
            check_atlas(browser, page, exact)
            check_session(browser, session, program, trace)
        finally:
            browser.close()
    print("the pages load, hover and stay offline")
    return 0


def write_session(program, trace, folder):
    """The page of two bookmarks of one head, one of another, and a result."""
    run(program, "sweep", trace, "--layers", "5", "--selector", "quest,streamingllm", "--budget", "16,64", "--out", folder / "sweep.csv")
    head = {"name": trace.name, "layer": 5, "q_head": 6, "budget": 32}
    marks = [{**head, "query": 260, "key": 20, "selector": "streamingllm", "note": "With <b>notes</b> & more"},
             {**head, "query": 100, "selector": "quest:page-size=16", "note": ""},
             {**head, "layer": 2, "query": 303, "selector": "", "note": "without a method"}]
    session = {"kind": "kvscope-session", "version": 1, "traces": [{"path": trace.name}], "results": ["sweep.csv"], "bookmarks": marks,
               "parameters": {"chunk": 64}}
    (folder / "session.json").write_text(json.dumps(session))
    page = folder / "session.html"
    run(program, "export", "--html", folder / "session.json", "--out", page)
    assert str(folder.resolve()) not in page.read_text(), "the page tells a folder of this machine"
    return page


def explained(program, trace, query, key, method):
    """What kvscope explain says of a key: whether it is kept, its weight, and the mass that the method keeps of the query."""
    return json.loads(run(program, "explain", trace, "--layers", 5, "--heads", 6, "--query", query, "--key", key, "--selector", method,
                          "--budget", 32, "--chunk", 64, "--dense-layers", 0, "--json"))


def numbers(browser, expression):
    return json.loads(browser.value(f"JSON.stringify({expression})"))


def box_of(browser):
    """Left, top and width of the map."""
    return numbers(browser, "(() => { const b = panel.canvas.getBoundingClientRect(); return [b.left, b.top, b.width]; })()")


def hover(browser, query, key):
    """Puts the mouse onto a pair of the map; returns what is said of it."""
    view, (left, top, side) = numbers(browser, "panel.view"), box_of(browser)
    browser.hover(left + (key - view["x"]) / view["size"] * side, top + (query - view["y"]) / view["size"] * side)
    return numbers(browser, "({...panel.readout.dataset, text: panel.readout.textContent})")


def screen(browser, width, height=800):
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
    time.sleep(.2)
    assert browser.value("document.documentElement.scrollWidth") <= width, (width, "the page is wider than the screen")


def press(browser, key):
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)


def check_quiet(browser):
    assert not browser.complaints(), browser.complaints()
    foreign = [url for url in browser.requests() if not url.startswith(("file:", "data:", "about:"))]
    assert not foreign, foreign


def check_ground(browser):
    """Dark where the reader's system is dark, or where it is chosen."""
    light = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 29)" != light
    browser.ask("Emulation.setEmulatedMedia", features=[])
    browser.value("(() => { const g = document.getElementById('ground'); g.value = 'dark'; g.onchange(); })()")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 29)"
    browser.value("(() => { const g = document.getElementById('ground'); g.value = ''; g.onchange(); })()")


def check_atlas(browser, page, exact):
    browser.open(page.resolve().as_uri() + "#layer=2&head=3")
    browser.value("void (window.panel = kvscopePage.atlas.panel)")
    assert "Layer 2, query head 3" in browser.value("panel.which.textContent")
    for q, k in [(75, 0), (40, 3), (10, 10), (60, 31), (33, 32)]:
        shown = hover(browser, 4 * q + 2, 4 * k + 2)
        assert abs(float(shown["weight"]) - exact[q, k]) <= 2.5e-4 * exact[q, k], (q, k, shown, exact[q, k])
        assert f"query {4 * q}\u2013{min(303, 4 * q + 3)}" in shown["text"] and f"key {4 * k}\u2013" in shown["text"], shown
    assert "not visible" in hover(browser, 30, 270)["text"]  # a key behind the query
    # zoom by the wheel keeps the cell below the mouse
    hover(browser, 242, 62)
    before = browser.value("JSON.stringify(panel.place(panel.cell))")
    left, top, side = box_of(browser)
    x, y = left + 62 / 304 * side, top + 242 / 304 * side
    browser.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-400)
    for _ in range(50):
        if browser.value("panel.view.size") < .6 * 304:
            break
        time.sleep(.1)
    browser.hover(x + 1, y)
    assert browser.value("panel.view.size") < .6 * 304 and browser.value("JSON.stringify(panel.place(panel.cell))") == before
    # a click in the atlas shows that head; the atlas can be ordered
    browser.value("document.querySelector('.head[data-index=\"5\"]').click()")
    assert browser.value("kvscopePage.atlas.head") == 5
    browser.value("(() => { const o = document.querySelector('.order'); o.value = 'distance'; o.onchange(); })()")
    far = numbers(browser, "[...document.querySelectorAll('.head span')].map(s => Number(s.textContent.split(' ')[2]))")
    assert len(far) == 64 and far == sorted(far, reverse=True), far[:5]
    check_sizes(browser)
    check_touch(browser)
    check_ground(browser)
    # without an address the page opens with the head that retrieves most
    browser.open(page.resolve().as_uri())
    retrieval = numbers(browser, "kvscopePage.data.heads.map((head) => head.numbers.retrieval)")
    assert browser.value("kvscopePage.atlas.head") == retrieval.index(max(retrieval))
    check_quiet(browser)


def check_sizes(browser):
    """On every screen the map and what is said below it are seen at once, also with 64 heads in a layer."""
    browser.value("Object.assign(panel, {view: {...panel.home}, held: false}); panel.draw()")
    browser.value("document.querySelector('.atlas').style.gridTemplateColumns = 'repeat(64, 60px)'")
    for width, height in [(1400, 900), (1920, 1080), (400, 800)]:
        screen(browser, width, height)
        parts = numbers(browser, "['.map', '.readout', '.key-ticks'].map((kind) => {"
                                 " const b = document.querySelector(kind).getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })")
        for left, top, right, bottom in parts:
            assert 0 <= left < right <= width and 0 <= top < bottom <= height, (width, height, parts)
        side = parts[0][2] - parts[0][0]
        assert side >= .5 * min(width, height) and abs(parts[0][3] - parts[0][1] - side) < 1, (width, parts)
    time.sleep(1)
    assert browser.value("[...document.querySelectorAll('.head canvas')].every((c) => c.getContext('2d').getImageData(0, 0, 52, 52).data"
                         ".some((x) => x !== 0))"), "a small map is not painted"
    # the keyboard's place is seen, and arrows are in the address
    browser.value("panel.canvas.focus()")
    press(browser, "ArrowRight")
    assert browser.value("getComputedStyle(panel.canvas).outlineWidth") == "3px"
    assert "query=" in browser.value("location.hash"), browser.value("location.hash")


def check_touch(browser):
    """Two fingers that part zoom about the point between them."""
    browser.value("Object.assign(panel, {view: {...panel.home}, held: false}); panel.draw()")
    left, top, side = box_of(browser)

    def fingers(apart):
        return [{"x": left + side * (.5 + sign * apart), "y": top + side * .5, "id": i} for i, sign in enumerate((-1, 1))]

    browser.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=fingers(.1))
    for apart in (.15, .2):
        browser.ask("Input.dispatchTouchEvent", type="touchMove", touchPoints=fingers(apart))
    browser.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    view = numbers(browser, "panel.view")
    assert all(abs(view[name] - wanted) < 4 for name, wanted in (("size", 152), ("x", 76), ("y", 76))), view
    assert not browser.value("panel.held")


def check_session(browser, page, program, trace):
    browser.open(page.resolve().as_uri())
    screen(browser, 1400)
    assert browser.value("document.querySelectorAll('.step').length") == 3
    assert "With &lt;b&gt;notes&lt;/b&gt; &amp; more" == browser.value("document.querySelector('.step h2').innerHTML")
    browser.value("void (window.panel = kvscopePage.views.get(0).map, window.text = kvscopePage.views.get(0).text)")
    # the bookmark is held in map and text, and the method's switch keeps it
    for method in (1, 0):
        browser.value(f"document.querySelectorAll('.methods button')[{method + 1}].click()")
        assert numbers(browser, "[panel.cell, panel.held, text.query, text.key]") == [{"query": 260, "key": 20}, True, 260, 20]
    # hover: weight, kept or dropped, and mass are explain's, for each method
    browser.value("panel.hold(null, false)")
    for m, method in enumerate(["streamingllm", "quest:page-size=16"]):
        browser.value(f"document.querySelectorAll('.methods button')[{m + 1}].click()")
        for query, key in [(250, 30), (250, 245), (301, 3), (120, 60), (299, 17)]:
            shown, report = hover(browser, query + .5, key + .5), explained(program, trace, query, key, method)
            exact = report["key"]["weight"]
            assert f"query {query} " in shown["text"] and f"key {key} " in shown["text"], shown
            assert abs(float(shown["weight"]) - exact) <= 2.5e-4 * exact, (query, key, shown, report)
            assert (float(shown["kept"]) == 1) == (report["key"]["end"] != "dropped"), (method, query, key, shown, report)
            assert f"keeps {100 * report['kept_mass']:.1f} % of this query" in shown["text"], (shown, report)
    # the text: the word's heaviest key and the mass kept are the analysis'; words walk
    browser.value("document.querySelectorAll('.methods button')[1].click(); text.point(260, true)")
    shown = numbers(browser, "({...text.readout.dataset})")
    report = explained(program, trace, 260, int(shown["key"]), "streamingllm")
    exact = report["heaviest"][0]
    assert int(shown["key"]) == exact["key"] and abs(float(shown["weight"]) - exact["weight"]) <= 2.5e-4 * exact["weight"], (shown, report)
    assert abs(float(shown["mass"]) - report["kept_mass"]) < 1e-5, (shown, report)
    browser.value("text.page.focus()")
    press(browser, "ArrowRight")
    assert browser.value("text.query") == 261
    # steps unfold; at every size nothing is wider than the screen; paper has every step
    browser.value("document.querySelectorAll('.step')[1].open = true")
    time.sleep(.3)
    assert numbers(browser, "[...kvscopePage.views.keys()]") == [0, 1] and browser.value("kvscopePage.views.get(1).map.method") == 1
    for width in (400, 1400, 1920):
        screen(browser, width)
    assert browser.value("[...document.querySelectorAll('figure img')].every((i) => i.complete && (i.naturalWidth > 100 || !i.offsetWidth))")
    check_ground(browser)
    pdf = base64.b64decode(browser.ask("Page.printToPDF", printBackground=True)["data"])
    assert browser.value("kvscopePage.views.size") == 3 and pdf.count(b"/Type /Page") > 4, "the printed page lacks steps"
    check_quiet(browser)


if __name__ == "__main__":
    sys.exit(main())
