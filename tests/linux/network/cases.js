// What programs for node do with sockets, each with both ends: `node cases.js CASE PORT`.
const [, , kind, text] = process.argv;
const port = Number(text);
const net = require('net');
const http = require('http');

const cases = {
  http() {
    const server = http.createServer((request, response) => {
      let size = 0;
      request.on('data', (part) => { size += part.length; });
      request.on('end', () => response.end(`${request.method} ${request.url} ${size}\n`));
    }).listen(port, async () => {
      const ask = (method, body) => new Promise((done) => {
        const request = http.request({ port, method, path: '/x' }, (response) => {
          response.setEncoding('utf8').on('data', (part) => done([response.statusCode, part]));
        });
        request.end(body);
      });
      console.log(server.address().family, await ask('GET'), await ask('POST', 'y'.repeat(300000)));
      server.close();
    });
  },
  fetch() {
    const server = http.createServer((request, response) => response.end(JSON.stringify({ url: request.url })));
    server.listen(port, '127.0.0.1', async () => {
      const urls = Array.from({ length: 20 }, (_, at) => `http://127.0.0.1:${port}/${at}`);
      const answers = await Promise.all(urls.map(async (url) => (await (await fetch(url)).json()).url));
      console.log(answers.join(' '));
      server.close();
      server.closeAllConnections?.();
    });
  },
  echo() {
    const server = net.createServer((end) => end.pipe(end)).listen(port, '::1', () => {
      const client = net.connect(port, '::1');
      let size = 0;
      client.on('data', (part) => { size += part.length; });
      client.on('end', () => { console.log(size, client.remoteFamily); server.close(); });
      client.end('z'.repeat(1000000));
    });
  },
  errors() {
    net.connect(port, '127.0.0.1').on('error', (error) => {
      console.log(error.code, error.syscall);
      const server = net.createServer().listen(port, () => {
        net.createServer().on('error', (second) => { console.log(second.code); server.close(); }).listen(port);
      });
    });
  },
  datagrams() {
    const socket = require('dgram').createSocket('udp4');
    socket.on('message', (data, from) => { console.log(String(data), from.address, from.port === port); socket.close(); });
    socket.bind(port, '127.0.0.1', () => socket.send('to itself', port, '127.0.0.1'));
  },
  cluster() {
    const cluster = require('cluster');
    if (cluster.isPrimary) {
      let up = 0;
      for (let at = 0; at < 2; at += 1) cluster.fork();
      cluster.on('listening', () => {
        up += 1;
        if (up < 2) return;
        const asked = Array.from({ length: 8 }, () => new Promise((done) => {
          http.get({ port, agent: false }, (response) => response.on('data', (part) => done(String(part))));
        }));
        Promise.all(asked).then((answers) => {
          console.log(answers.length, new Set(answers).size);
          for (const worker of Object.values(cluster.workers)) worker.kill();
        });
      });
    } else {
      http.createServer((request, response) => response.end(String(cluster.worker.id))).listen(port);
    }
  },
  interfaces() {
    const lo = require('os').networkInterfaces().lo;
    console.log(lo.map((one) => [one.address, one.netmask, one.family, one.internal, one.cidr].join(' ')).join('\n'));
  },
  lookup() {
    require('dns').lookup('localhost', { family: 4 }, (error, address) => console.log(error, address));
  },
};
cases[kind]();
