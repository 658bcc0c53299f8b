"""A page of kvscope export in headless Chromium: it loads without an error and without the network, and hovering gives the number
that kvscope analyze attention-map gives for that cell.

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
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(chromium, profile)
        try:
            check(browser, page, exact, said, picture)
        finally:
            browser.close()
    print("the page loads, hovers and stays offline")
    return 0


def check(browser, page, exact, said, picture):
    browser.open(page.resolve().as_uri() + "#layer=2&head=3")
    state = browser.value("JSON.stringify({head: kvscopePage.state.head, texts: document.getElementById('which').textContent})")
    assert "Layer 2, query head 3" in state, state
    box = json.loads(browser.value("(() => { const b = document.getElementById('map').getBoundingClientRect();"
                                   " return JSON.stringify([b.left, b.top, b.width]); })()"))
    tried = 0
    for q, k in [(75, 0), (40, 3), (10, 10), (60, 31), (33, 32)]:
        browser.hover(box[0] + (k + .5) / said["cells"] * box[2], box[1] + (q + .5) / said["cells"] * box[2])
        shown = browser.value("document.getElementById('readout').dataset.weight")
        text = browser.value("document.getElementById('readout').textContent")
        assert abs(float(shown) - exact[q, k]) <= 2.5e-4 * exact[q, k], (q, k, shown, exact[q, k])
        assert f"query {4 * q}–{min(303, 4 * q + 3)}" in text and f"key {4 * k}–" in text, text
        tried += 1
    assert tried == 5
    browser.hover(box[0] + .9 * box[2], box[1] + .1 * box[2])  # a key behind the query
    assert "not visible" in browser.value("document.getElementById('readout').textContent")
    # zoom by the wheel keeps the cell below the mouse
    x, y = box[0] + .2 * box[2], box[1] + .8 * box[2]
    browser.hover(x, y)
    before = browser.value("JSON.stringify(kvscopePage.state.cell)")
    browser.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-400)
    for _ in range(50):
        if browser.value("kvscopePage.state.view.size") < said["cells"]:
            break
        time.sleep(.1)
    assert browser.value("kvscopePage.state.view.size") < .6 * said["cells"]
    browser.hover(x + 1, y)
    assert browser.value("JSON.stringify(kvscopePage.state.cell)") == before
    # a click in the atlas shows that head; the atlas can be ordered
    browser.value("document.querySelector('.head[data-index=\"5\"]').click()")
    assert browser.value("kvscopePage.state.head") == 5
    browser.value("(() => { const o = document.getElementById('order'); o.value = 'distance'; o.onchange(); })()")
    far = json.loads(browser.value("JSON.stringify([...document.querySelectorAll('.head span')].map(s => Number(s.textContent.split(' ')[2])))"))
    assert len(far) == 64 and far == sorted(far, reverse=True), far[:5]
    show_all(browser, said)
    check_sizes(browser)
    show_all(browser, said)
    check_touch(browser)
    check_start(browser, page)
    assert not browser.complaints(), browser.complaints()
    foreign = [url for url in browser.requests() if not url.startswith(("file:", "data:", "about:"))]
    assert not foreign, foreign
    if picture:
        time.sleep(1)
        pathlib.Path(picture).write_bytes(base64.b64decode(browser.ask("Page.captureScreenshot")["data"]))


def numbers(browser, expression):
    return json.loads(browser.value(f"JSON.stringify({expression})"))


def show_all(browser, said):
    browser.value("Object.assign(kvscopePage.state, {view: {x: 0, y: 0, size: %d}, held: false}); kvscopePage.draw()" % said["cells"])


def check_sizes(browser):
    """On every screen the map and what is said below it are seen at once, also with 64 heads in a layer."""
    browser.value("document.getElementById('order').value = ''")
    browser.value("document.getElementById('order').onchange()")
    many = "document.getElementById('atlas').style.gridTemplateColumns = 'repeat(64, 60px)'"
    for width, height, phone in [(1280, 800, False), (1920, 1080, False), (400, 800, True)]:
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        browser.value(many)
        time.sleep(.2)
        parts = numbers(browser, "['map', 'readout', 'key-ticks'].map((id) => {"
                                 " const b = document.getElementById(id).getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })")
        assert browser.value("document.documentElement.scrollWidth") <= width, (width, "the page is wider than the screen")
        for left, top, right, bottom in parts:
            assert 0 <= left < right <= width and 0 <= top < bottom <= height, (width, height, parts)
        side = parts[0][2] - parts[0][0]
        assert side >= .5 * min(width, height) and abs(parts[0][3] - parts[0][1] - side) < 1, (width, parts)
    ticks = numbers(browser, "[...document.querySelectorAll('#key-ticks span')].map((s) => Number(s.textContent))")
    assert len(ticks) >= 3 and ticks[0] == 0, ticks
    # only what is in sight is painted; what is scrolled to follows
    blank = ("[...document.querySelectorAll('.head canvas')].map((c) => c.getContext('2d').getImageData(0, 0, 52, 52).data"
             ".some((x) => x !== 0))")
    browser.ask("Emulation.setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False)
    browser.value("document.getElementById('atlas').scrollTo(1e6, 1e6)")
    time.sleep(1)
    assert numbers(browser, blank)[-1]
    # the keyboard's place is seen, and arrows are in the address
    browser.value("document.getElementById('map').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    assert browser.value("getComputedStyle(document.getElementById('map')).outlineWidth") == "3px"
    assert "query=" in browser.value("location.hash"), browser.value("location.hash")
    # dark where the reader's system is dark
    light = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.value("getComputedStyle(document.body).backgroundColor") != light
    browser.ask("Emulation.setEmulatedMedia", features=[])


def check_touch(browser):
    """Two fingers that part zoom about the point between them."""
    cells = browser.value("kvscopePage.state.view.size")
    left, top, side = numbers(browser, "(() => { const b = document.getElementById('map').getBoundingClientRect();"
                                       " return [b.left, b.top, b.width]; })()")

    def fingers(apart):
        return [{"x": left + side * (.5 + sign * apart), "y": top + side * .5, "id": i} for i, sign in enumerate((-1, 1))]

    browser.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=fingers(.1))
    for apart in (.15, .2):
        browser.ask("Input.dispatchTouchEvent", type="touchMove", touchPoints=fingers(apart))
    browser.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    view = numbers(browser, "kvscopePage.state.view")
    assert abs(view["size"] - cells / 2) < 1, view
    for start in (view["x"], view["y"]):
        assert abs(start - cells / 4) < 1, view
    assert not browser.value("kvscopePage.state.held")


def check_start(browser, page):
    """Without an address the page opens with a head that has something to show."""
    browser.open(page.resolve().as_uri())
    heads = numbers(browser, "[...document.querySelectorAll('.head')].map((b) => Number(b.dataset.index))")
    assert len(heads) == 64
    best = browser.value("(() => { const d = JSON.parse(document.getElementById('page-data').textContent).heads.map((h) => h.numbers.retrieval);"
                         " return d.indexOf(Math.max(...d)); })()")
    assert browser.value("kvscopePage.state.head") == best


if __name__ == "__main__":
    sys.exit(main())
