"""Pages of kvscope export in headless Chromium: they load without an error and without the network, hovering gives the numbers of
kvscope analyze attention-map and of kvscope explain, keys go through the steps of a story, and all of them are printed.

    page_in_browser.py PROGRAM FOLDER [--picture FILE.png]

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
    picture = sys.argv[sys.argv.index("--picture") + 1] if "--picture" in sys.argv else None
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
    story = write_story(program, trace, folder)
    example = make_example(program, folder)
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(chromium, profile)
        try:
            check(browser, page, exact, said, picture)
            check_story(browser, story, program, trace)
            browser.open(example.resolve().as_uri())
            check_quiet(browser)
        finally:
            browser.close()
    print("the pages load, hover and stay offline")
    return 0


def write_story(program, trace, folder):
    """Four steps: a map with methods, a part of it with its text, an atlas, a figure."""
    run(program, "sweep", trace, "--layers", "5", "--selector", "quest,streamingllm", "--budget", "16,64", "--out", folder / "sweep.csv")
    head = {"layer": 5, "head": 6}
    methods = [{"method": "streamingllm", "budget": 32}, {"method": "quest:page-size=16", "budget": 32}]
    steps = [
        {"title": "A map", "note": "With **methods** & a <b>note</b>.", "panel": "map", **head, "methods": methods, "chunk": 64,
         "marks": [{"queries": [200, 230], "keys": [20, 40], "label": "a box"}, {"from": [150, 10], "to": [210, 30]}]},
        {"title": "A part", "panel": ["map", "text"], **head, "methods": methods, "chunk": 64, "queries": [240, 303], "keys": [10, 70],
         "query": 260, "marks": [{"words": [260, 262], "arrow": [20, 22], "label": "words"}]},
        {"title": "An atlas", "panel": "atlas", "layers": "5", "heads": "0-3"},
        {"title": "A figure", "panel": "figure", "figure": {"kind": "budget", "results": ["sweep.csv"], "options": {"metric": "mass"}}}]
    story = {"kind": "kvscope-story", "version": 1, "title": "A story", "author": "Nobody", "trace": trace.name, "steps": steps}
    (folder / "story.json").write_text(json.dumps(story))
    page = folder / "story.html"
    run(program, "export", "--story", folder / "story.json", "--out", page)
    return page


def make_example(program, folder):
    """The page of the example, by the commands of its README."""
    stories = pathlib.Path(__file__).resolve().parents[2] / "notebooks_export" / "stories"
    commands = (stories / "README.md").read_text().split("```sh\n")[1].split("```")[0]
    done = subprocess.run(["bash", "-ec", f"kvscope() {{ '{pathlib.Path(program).resolve()}' \"$@\"; }}; stories='{stories}'\n{commands}"], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = folder / "pass_key.html"
    assert 1e6 < page.stat().st_size < 10e6
    return page


def explained(program, trace, query, key, method):
    """What kvscope explain says of a key: whether it is kept, its weight, and the mass that the method keeps of the query."""
    return json.loads(run(program, "explain", trace, "--layers", 5, "--heads", 6, "--query", query, "--key", key, "--selector", method,
                          "--budget", 32, "--chunk", 64, "--json"))


def check(browser, page, exact, said, picture):
    browser.open(page.resolve().as_uri() + "#layer=2&head=3")
    browser.value("void (window.panel = kvscopePage.story.views[0].atlas.panel)")
    assert "Layer 2, query head 3" in browser.value("panel.which.textContent")
    box = numbers(browser, "(() => { const b = panel.canvas.getBoundingClientRect(); return [b.left, b.top, b.width]; })()")
    tried = 0
    for q, k in [(75, 0), (40, 3), (10, 10), (60, 31), (33, 32)]:
        browser.hover(*place(browser, box, 4 * k + 2, 4 * q + 2))
        shown = browser.value("panel.readout.dataset.weight")
        text = browser.value("panel.readout.textContent")
        assert abs(float(shown) - exact[q, k]) <= 2.5e-4 * exact[q, k], (q, k, shown, exact[q, k])
        assert f"query {4 * q}–{min(303, 4 * q + 3)}" in text and f"key {4 * k}–" in text, text
        tried += 1
    assert tried == 5
    browser.hover(box[0] + .9 * box[2], box[1] + .1 * box[2])  # a key behind the query
    assert "not visible" in browser.value("panel.readout.textContent")
    # zoom by the wheel keeps the cell below the mouse
    x, y = box[0] + .2 * box[2], box[1] + .8 * box[2]
    browser.hover(x, y)
    before = browser.value("JSON.stringify([panel.place(panel.cell).r, panel.place(panel.cell).c])")
    browser.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-400)
    for _ in range(50):
        if browser.value("panel.view.size") < 303:
            break
        time.sleep(.1)
    assert browser.value("panel.view.size") < .6 * 304
    browser.hover(x + 1, y)
    assert browser.value("JSON.stringify([panel.place(panel.cell).r, panel.place(panel.cell).c])") == before
    # a click in the atlas shows that head; the atlas can be ordered
    browser.value("document.querySelector('.head[data-index=\"5\"]').click()")
    assert browser.value("kvscopePage.story.views[0].atlas.head") == 5
    browser.value("(() => { const o = document.querySelector('.order'); o.value = 'distance'; o.onchange(); })()")
    far = json.loads(browser.value("JSON.stringify([...document.querySelectorAll('.head span')].map(s => Number(s.textContent.split(' ')[2])))"))
    assert len(far) == 64 and far == sorted(far, reverse=True), far[:5]
    show_all(browser)
    check_sizes(browser)
    show_all(browser)
    check_touch(browser)
    check_start(browser, page)
    check_quiet(browser)
    if picture:
        time.sleep(1)
        pathlib.Path(picture).write_bytes(base64.b64decode(browser.ask("Page.captureScreenshot")["data"]))


def numbers(browser, expression):
    return json.loads(browser.value(f"JSON.stringify({expression})"))


def place(browser, box, key, query):
    """Where a pair lies on the screen; box: left, top and width of the map."""
    view = numbers(browser, "panel.view")
    return [box[0] + (key - view["x"]) / view["size"] * box[2], box[1] + (query - view["y"]) / view["size"] * box[2]]


def check_quiet(browser):
    assert not browser.complaints(), browser.complaints()
    foreign = [url for url in browser.requests() if not url.startswith(("file:", "data:", "about:"))]
    assert not foreign, foreign


def show_all(browser):
    browser.value("Object.assign(panel, {view: {...panel.home}, held: false}); panel.draw()")


def check_sizes(browser):
    """On every screen the map and what is said below it are seen at once, also with 64 heads in a layer."""
    browser.value("document.querySelector('.order').value = ''")
    browser.value("document.querySelector('.order').onchange()")
    many = "document.querySelector('.atlas').style.gridTemplateColumns = 'repeat(64, 60px)'"
    for width, height, phone in [(1280, 800, False), (1920, 1080, False), (400, 800, True)]:
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        browser.value(many)
        time.sleep(.2)
        parts = numbers(browser, "['.map', '.readout', '.key-ticks'].map((kind) => {"
                                 " const b = document.querySelector(kind).getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })")
        assert browser.value("document.documentElement.scrollWidth") <= width, (width, "the page is wider than the screen")
        for left, top, right, bottom in parts:
            assert 0 <= left < right <= width and 0 <= top < bottom <= height, (width, height, parts)
        side = parts[0][2] - parts[0][0]
        assert side >= .5 * min(width, height) and abs(parts[0][3] - parts[0][1] - side) < 1, (width, parts)
    ticks = numbers(browser, "[...document.querySelectorAll('.key-ticks span')].map((s) => Number(s.textContent))")
    assert len(ticks) >= 3 and ticks[0] == 0, ticks
    # only what is in sight is painted; what is scrolled to follows
    blank = ("[...document.querySelectorAll('.head canvas')].map((c) => c.getContext('2d').getImageData(0, 0, 52, 52).data"
             ".some((x) => x !== 0))")
    browser.ask("Emulation.setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False)
    browser.value("document.querySelector('.atlas').scrollTo(1e6, 1e6)")
    time.sleep(1)
    assert numbers(browser, blank)[-1]
    # the keyboard's place is seen, and arrows are in the address
    browser.value("panel.canvas.focus()")
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    assert browser.value("getComputedStyle(panel.canvas).outlineWidth") == "3px"
    assert "query=" in browser.value("location.hash"), browser.value("location.hash")
    # dark where the reader's system is dark
    light = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.value("getComputedStyle(document.body).backgroundColor") != light
    browser.ask("Emulation.setEmulatedMedia", features=[])


def check_touch(browser):
    """Two fingers that part zoom about the point between them."""
    start = numbers(browser, "panel.view")
    left, top, side = numbers(browser, "(() => { const b = panel.canvas.getBoundingClientRect();"
                                       " return [b.left, b.top, b.width]; })()")

    def fingers(apart):
        return [{"x": left + side * (.5 + sign * apart), "y": top + side * .5, "id": i} for i, sign in enumerate((-1, 1))]

    browser.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=fingers(.1))
    for apart in (.15, .2):
        browser.ask("Input.dispatchTouchEvent", type="touchMove", touchPoints=fingers(apart))
    browser.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    view = numbers(browser, "panel.view")
    assert abs(view["size"] - start["size"] / 2) < 4, view
    for axis in "xy":
        assert abs(view[axis] - start[axis] - start["size"] / 4) < 4, view
    assert not browser.value("panel.held")


def check_start(browser, page):
    """Without an address the page opens with a head that has something to show."""
    browser.open(page.resolve().as_uri())
    heads = numbers(browser, "[...document.querySelectorAll('.head')].map((b) => Number(b.dataset.index))")
    assert len(heads) == 64
    best = browser.value("(() => { const d = JSON.parse(document.getElementById('page-data').textContent).maps.map((m) => m.numbers.retrieval);"
                         " return d.indexOf(Math.max(...d)); })()")
    assert browser.value("kvscopePage.story.views[0].atlas.head") == best


def press(browser, key, code=None):
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or key)


def check_story(browser, page, program, trace):
    browser.open(page.resolve().as_uri())
    browser.ask("Emulation.setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False)
    assert browser.value("document.querySelectorAll('.step').length") == 4
    assert "<b>methods</b> &amp; a &lt;b&gt;note&lt;/b&gt;" in browser.value("document.querySelector('.note p + h2 + p').innerHTML")
    # hover: weight, kept or dropped, and mass are explain's, for each method
    browser.value("void (window.panel = kvscopePage.story.views[0].map)")
    for m, method in enumerate(["streamingllm", "quest:page-size=16"]):
        browser.value(f"document.querySelectorAll('#step-1 .methods button')[{m + 1}].click()")
        box = numbers(browser, "(() => { const b = panel.canvas.getBoundingClientRect(); return [b.left, b.top, b.width]; })()")
        for query, key in [(250, 30), (250, 245), (301, 3), (120, 60), (299, 17)]:
            browser.hover(*place(browser, box, key + .5, query + .5))
            shown = numbers(browser, "({...panel.readout.dataset, text: panel.readout.textContent})")
            report = explained(program, trace, query, key, method)
            assert f"query {query} " in shown["text"] and f"key {key} " in shown["text"], shown
            exact = report["key"]["weight"]
            assert abs(float(shown["weight"]) - exact) <= 2.5e-4 * exact, (query, key, shown, report)
            assert (float(shown["kept"]) == 1) == (report["key"]["end"] != "dropped"), (method, query, key, shown, report)
            assert f"keeps {100 * report['kept_mass']:.1f} % of this query" in shown["text"], (shown, report)
    # the text: the word's heaviest key and the mass kept are the analysis'
    press(browser, "Escape")
    press(browser, "ArrowRight")
    assert browser.value("kvscopePage.story.at") == 1 and browser.value("document.querySelector('#step-1').hidden")
    assert "Step 2 of 4: A part" in browser.value("document.getElementById('said').textContent")
    assert browser.value("location.hash").startswith("#step=2&query=260")
    shown = numbers(browser, "({...kvscopePage.story.views[1].text.readout.dataset})")
    report = explained(program, trace, 260, int(shown["key"]), "streamingllm")
    exact = report["heaviest"][0]
    assert int(shown["key"]) == exact["key"] and abs(float(shown["weight"]) - exact["weight"]) <= 2.5e-4 * exact["weight"], (shown, report)
    assert abs(float(shown["mass"]) - report["kept_mass"]) < 1e-5, (shown, report)
    # keys: number, end, home; the words walk
    for key, at in [("4", 3), ("Home", 0), ("End", 3), ("ArrowLeft", 2), ("2", 1)]:
        press(browser, key)
        assert browser.value("kvscopePage.story.at") == at, (key, at)
    browser.value("document.querySelector('#step-2 .text').focus()")
    press(browser, "ArrowRight")
    assert browser.value("kvscopePage.story.views[1].text.query") == 261 and browser.value("kvscopePage.story.at") == 1
    # figures say their numbers, at every size nothing is wider than the screen, and paper has every step
    press(browser, "Escape")
    press(browser, "4")
    browser.value("document.querySelector('#step-4 .drawing').focus()")
    press(browser, "ArrowRight")
    assert "kept" in browser.value("document.querySelector('#step-4 .readout').textContent")
    for width, height in [(400, 800), (1280, 800), (1920, 1080)]:
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        for i in range(4):
            browser.value(f"kvscopePage.story.show({i})")
            assert browser.value("document.documentElement.scrollWidth") <= width, (width, i)
    browser.value("(() => { const g = document.getElementById('ground'); g.value = 'dark'; g.onchange(); })()")
    dark = browser.value("getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(21, 24, 29)", dark
    pdf = base64.b64decode(browser.ask("Page.printToPDF", printBackground=True)["data"])
    assert pdf.count(b"/Type /Page\n") >= 4 or pdf.count(b"/Type /Page") > 4, "the printed story lacks steps"
    assert browser.value("kvscopePage.story.at") == 3 and browser.value("document.querySelectorAll('.step:not([hidden])').length") == 1
    check_quiet(browser)


if __name__ == "__main__":
    sys.exit(main())
