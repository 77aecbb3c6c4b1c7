"""Every way that is known in which a document names an address, and a listener that counts who comes.

Each way gets a host name of its own, http and https, so that what is found in the browser's network log says which way
it was. `{u}` stands for the address.
"""

import json
import threading

from tests.support.accepting import Accepting
from tests.support.waiting import PATIENCE

WAYS = [
    "<iframe src='{u}'></iframe>",
    "<iframe hidden src='{u}'></iframe>",
    "<iframe loading=lazy src='{u}'></iframe>",
    "<iframe loading=eager style='display:none' src='{u}'></iframe>",
    "<iframe srcdoc=\"<iframe src='{u}'></iframe>\"></iframe>",
    "<iframe srcdoc=\"<link rel=preconnect href='{u}'>\"></iframe>",
    "<iframe credentialless src='{u}'></iframe>",
    "<noframes><iframe src='{u}'></iframe></noframes>",
    "<template shadowrootmode=open><iframe src='{u}'></iframe></template>",
    "<div><template shadowrootmode=open><link rel=preconnect href='{u}'></template></div>",
    "<noscript><iframe src='{u}'></iframe></noscript>",
    "<noscript><p title=\"</noscript><iframe src='{u}'></iframe>\"></noscript>",
    "<svg><style><iframe src='{u}'></iframe></style></svg>",
    "<math><mtext><table><mglyph><style><iframe src='{u}'></iframe></style></mglyph></table></mtext></math>",
    "<svg><foreignObject><iframe src='{u}'></iframe></foreignObject></svg>",
    "<object data='{u}'></object>",
    "<object><param name=src value='{u}'></object>",
    "<object type='text/html' data='{u}'></object>",
    "<embed src='{u}'>",
    "<applet code=x archive='{u}' codebase='{u}'></applet>",
    "<portal src='{u}'></portal>",
    "<fencedframe src='{u}'></fencedframe>",
    "<webview src='{u}'></webview>",
    "<img src='{u}'>",
    "<img srcset='{u} 2x'>",
    "<img loading=lazy src='{u}'>",
    "<img src=x: attributionsrc='{u}'>",
    "<img src=x: longdesc='{u}' lowsrc='{u}' dynsrc='{u}' usemap='{u}'>",
    "<image src='{u}' href='{u}'>",
    "<picture><source srcset='{u}'><img src=x:></picture>",
    "<input type=image src='{u}'>",
    "<video src='{u}' autoplay></video>",
    "<video poster='{u}'></video>",
    "<audio src='{u}' autoplay></audio>",
    "<video autoplay><source src='{u}'><track default src='{u}'></video>",
    "<bgsound src='{u}'>",
    "<script src='{u}'></script>",
    "<script>new Image().src='{u}'; fetch('{u}'); location='{u}'; open('{u}')</script>",
    "<script type=module>import '{u}'</script>",
    '<script type=importmap>{{"imports": {{"x": "{u}"}}}}</script>',
    '<script type=speculationrules>{{"prefetch": [{{"urls": ["{u}"]}}], "prerender": [{{"urls": ["{u}"]}}]}}</script>',
    "<img src=x: onerror=\"new Image().src='{u}'\">",
    "<body onload=\"location='{u}'\">",
    "<details open ontoggle=\"location='{u}'\"><summary>x</summary></details>",
    "<a href=\"javascript:location='{u}'\" autofocus onfocus=\"location='{u}'\" tabindex=0>x</a>",
    *(
        f"<link rel='{rel}' href='{{u}}'>"
        for rel in (
            *(
                "stylesheet",
                "alternate stylesheet",
                "icon",
                "shortcut icon",
                "apple-touch-icon",
                "mask-icon",
                "manifest",
            ),
            *("preconnect", "dns-prefetch", "prefetch", "prerender", "modulepreload", "next", "search", "pingback"),
            *("canonical", "amphtml", "import", "compression-dictionary", "privacy-policy", "expect"),
        )
    ),
    *(
        f"<link rel=preload as={kind} href='{{u}}'>"
        for kind in ("image", "script", "style", "font", "fetch", "document")
    ),
    "<link rel=preload as=image imagesrcset='{u}'>",
    "<style>@import '{u}';</style>",
    "<style>@font-face {{ font-family: f; src: url({u}) }} * {{ font-family: f; background: url({u}) }}</style>",
    "<style>li {{ list-style: url({u}) }} p::after {{ content: url({u}) }}</style><p>x</p><li>x</li>",
    "<p style='background-image: url({u}); border-image: url({u}) 1; mask: url({u})'>x</p>",
    "<svg><image href='{u}' width=9 height=9 /></svg>",
    "<svg><image xlink:href='{u}' width=9 height=9 /></svg>",
    "<svg><use href='{u}#x' /><script href='{u}' /></svg>",
    "<svg><filter id=f><feImage href='{u}' /></filter><rect width=9 height=9 fill='url({u}#x)' /></svg>",
    "<svg><a href='{u}'><text y=9>x</text></a><animate attributeName=href values='{u}' /></svg>",
    "<svg><set attributeName=href to='{u}' begin=0s /></svg>",
    "<math href='{u}'><mi xlink:href='{u}'>x</mi></math>",
    "<table background='{u}'><tr background='{u}'><td background='{u}'>x</table>",
    "<body background='{u}'>",
    "<html manifest='{u}'>",
    "<meta http-equiv=refresh content='0;url={u}'>",
    "<meta http-equiv=Link content='<{u}>; rel=preconnect'>",
    "<meta http-equiv=Content-Security-Policy content=\"script-src 'none'; report-uri {u}\">",
    "<meta http-equiv=x-dns-prefetch-control content=on><a href='{u}'>x</a>",
    "<meta name=msapplication-config content='{u}'><meta property=og:image content='{u}'>",
    "<base href='{u}'><img src=relative><a href=relative>x</a>",
    "<form action='{u}'><input name=x autofocus><button formaction='{u}'>x</button></form>",
    "<isindex action='{u}' prompt=x>",
    "<a href='{u}' ping='{u}' attributionsrc='{u}' rel='preconnect prefetch prerender dns-prefetch'>x</a>",
    "<map name=m><area href='{u}' shape=default ping='{u}'></map><img src=x: usemap='#m'>",
    "<blockquote cite='{u}'><q cite='{u}'>x</q><ins cite='{u}'>x</ins></blockquote>",
    "<button command=show-modal><menuitem icon='{u}'></button>",
    "<xml><x xmlns='{u}' xlink:href='{u}' xml:base='{u}'></x></xml>",
    "<?xml-stylesheet href='{u}' type='text/css'?>",
    "<!--><iframe src='{u}'></iframe>-->",
    "<![CDATA[><iframe src='{u}'></iframe>]]>",
    "<title><iframe src='{u}'></iframe></title>",
    "<textarea></textarea><iframe src='{u}'></iframe>",
    "<p title=\"><iframe src='{u}'></iframe>\">x</p>",
    "<select><iframe src='{u}'></iframe></select>",
    "<xmp></xmp><iframe src='{u}'></iframe>",
]
FRAMESET = "<frameset><frame src='{u}'><frame src='{u}'></frameset>"


def document(listener, ways):
    """A document that tries each way, over http and over https."""
    return "\n".join(way.format(u=listener.address(scheme)) for way in ways for scheme in ("http", "https"))


class Listener(Accepting):
    """Counts connections, and says of each whether it began a TLS handshake. `address` makes a host name each time."""

    def __init__(self):
        self.first_bytes = []
        self.names = 0
        self.news = threading.Condition()
        super().__init__()

    def address(self, scheme="http"):
        self.names += 1
        return f"{scheme}://t{self.names}.example:{self.port}/"

    def accepted(self, connection):
        with self.news:  # counted when it comes, whether or not anything is said
            self.first_bytes.append(b"")
            at = len(self.first_bytes) - 1
            self.news.notify_all()
        threading.Thread(target=self._hear, args=(connection, at), daemon=True).start()

    def _hear(self, connection, at):
        with connection:
            try:
                said = connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
            except OSError:
                return
            with self.news:
                self.first_bytes[at] = said
                self.news.notify_all()

    @property
    def connections(self):
        return len(self.first_bytes)

    @property
    def hellos(self):
        return sum(said.startswith(b"\x16\x03") for said in self.first_bytes)

    def wait_for(self, host):
        """Until somebody asked for that host in plain text."""
        with self.news:
            assert self.news.wait_for(lambda: any(host.encode() in said for said in self.first_bytes), timeout=PATIENCE)


def names_in(netlog, *, suffixes=(".example", "looked-up.localhost")):
    """The host names of ours that a browser's network log mentions: connected to, or only looked up."""
    log = json.loads(netlog.read_text())
    found = set()
    for event in log["events"]:
        text = json.dumps(event.get("params", {}))
        for word in text.replace("/", " ").replace('"', " ").replace(":", " ").replace("<", " ").split():
            if word.endswith(suffixes):
                found.add(word)
    return found
