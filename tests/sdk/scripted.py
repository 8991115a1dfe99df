"""A server that plays answers: each case has a path of its own, gets the
answers of its list in their order, and keeps what was asked."""
import http.server
import socket
import threading

from cases import CUT, DROP


class Script:
    def __init__(self, answers):
        self.answers = list(answers)
        self.requests = []   # (method, path, query, headers, body)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def play(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        name, _, rest = self.path[1:].partition("/")
        path, _, query = ("/" + rest).partition("?")
        script = self.server.scripts[name]
        script.requests.append((
            self.command, path, query,
            {k.lower(): v for k, v in self.headers.items()}, body.decode()))
        answer = script.answers.pop(0) if script.answers else (
            599, {}, "the script has no more answers")
        if answer == DROP:
            return self.end()
        status, headers, text = ((200, {}, "hel" + " " * 97)
                                 if answer == CUT else answer)
        data = text.encode()
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:3] if answer == CUT else data)
        if answer == CUT:
            self.end()

    def end(self):
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = play


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.scripts = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, answers):
        """A new script; its URL and itself."""
        name = f"c{len(self.scripts)}"
        self.scripts[name] = Script(answers)
        return f"http://127.0.0.1:{self.server_port}/{name}", self.scripts[name]
