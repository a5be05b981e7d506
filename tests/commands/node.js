#!/usr/bin/node
// A JIT, child processes, timers and files.
const { execFileSync, spawn } = require('child_process');
const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));
console.log(fib(22));
console.log(execFileSync('echo', ['from a child']).toString());
const child = spawn('cat');
child.stdout.on('data', (data) => console.log(String(data)));
child.on('close', (status) => {
  console.log('status', status);
  Promise.all([3, 1, 2].map((n) => new Promise((done) => setTimeout(() => done(n), n)))).then((all) => console.log(all));
});
child.stdin.end('through a pipe');
