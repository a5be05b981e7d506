"""An FTP server of one file, passive and active: `ftp.py PORT`."""
import socket
import socketserver
import sys

FILES = {"data": b"the file's text\n"}


class Handler(socketserver.StreamRequestHandler):
    passive = active = None

    def say(self, line):
        self.wfile.write(line.encode() + b"\r\n")

    def data(self):
        self.say("150 Here it comes")
        if self.active:
            return socket.create_connection(self.active)
        end, _ = self.passive.accept()
        self.passive.close()
        return end

    def open_passive(self):
        self.passive = socket.create_server(("127.0.0.1", 0))
        return self.passive.getsockname()[1]

    def handle(self):
        self.say("220 Ready")
        for line in self.rfile:
            verb, _, word = line.decode().strip().partition(" ")
            word = word.lstrip("/")
            match verb.upper():
                case "USER" | "PASS":
                    self.say("230 Welcome")
                case "PASV":
                    port = self.open_passive()
                    self.say(f"227 Passive (127,0,0,1,{port >> 8},{port & 255})")
                case "EPSV":
                    self.say(f"229 Passive (|||{self.open_passive()}|)")
                case "PORT":
                    parts = [int(part) for part in word.split(",")]
                    self.active = (".".join(map(str, parts[:4])), parts[4] * 256 + parts[5])
                    self.say("200 Active")
                case "EPRT":
                    _, _, host, port, _ = word.split(word[0])
                    self.active = (host, int(port))
                    self.say("200 Active")
                case "RETR" if word in FILES:
                    with self.data() as end:
                        end.sendall(FILES[word])
                    self.say("226 Done")
                case "NLST" | "LIST":
                    with self.data() as end:
                        long = "-rw-r--r-- 1 0 0 16 Jan 01 2020 " if verb.upper() == "LIST" else ""
                        for name in sorted(FILES):
                            end.sendall(f"{long}{name}\r\n".encode())
                    self.say("226 Done")
                case "STOR":
                    with self.data() as end:
                        FILES[word] = end.makefile("rb").read()
                    self.say("226 Done")
                case "SIZE" if word in FILES:
                    self.say(f"213 {len(FILES[word])}")
                case "PWD":
                    self.say('257 "/"')
                case "TYPE" | "CWD" | "MODE":
                    self.say("200 Fine")
                case "QUIT":
                    self.say("221 Bye")
                    return
                case _:
                    self.say("550 No")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
