// An HTTP proxy with CONNECT at PORT, and a SOCKS 5 proxy at PORT + 1: `node proxy.js PORT`.
const net = require('net');
const http = require('http');
const port = Number(process.argv[2]);

http.createServer((request, response) => {
  const { hostname, port: there, pathname } = new URL(request.url);
  http.get({ hostname, port: there, path: pathname }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
}).on('connect', (request, end, head) => {
  const [hostname, there] = request.url.split(':');
  const far = net.connect(there, hostname, () => {
    end.write('HTTP/1.1 200 OK\r\n\r\n');
    far.write(head);
    far.pipe(end).pipe(far);
  });
}).listen(port, '127.0.0.1');

net.createServer((end) => {
  end.once('data', () => {
    end.write(Buffer.from([5, 0]));
    end.once('data', (asked) => {
      const size = asked[4];
      const far = net.connect(asked.readUInt16BE(5 + size), '127.0.0.1', () => {
        end.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
        far.pipe(end).pipe(far);
      });
    });
  });
}).listen(port + 1, '127.0.0.1');
