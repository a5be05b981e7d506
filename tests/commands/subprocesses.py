#!/usr/bin/python3
"""subprocess, multiprocessing and signals."""
import multiprocessing
import os
import signal
import subprocess


def square(number):
    return number * number


def main():
    print(subprocess.run(["sort", "-n"], input="3\n1\n2\n", capture_output=True, text=True).stdout)
    print(subprocess.run("exit 5", shell=True).returncode)
    sleeper = subprocess.Popen(["sleep", "100"])
    sleeper.kill()
    print(sleeper.wait())
    try:
        subprocess.run(["sleep", "100"], timeout=0.2)
    except subprocess.TimeoutExpired:
        print("expired")
    with multiprocessing.Pool(3) as pool:
        print(pool.map(square, range(20)))
    queue = multiprocessing.Queue()
    worker = multiprocessing.Process(target=queue.put, args=([1, 2, 3],))
    worker.start()
    print(queue.get())
    worker.join()
    print(worker.exitcode)
    signal.signal(signal.SIGUSR1, lambda number, frame: print("signal", number))
    os.kill(os.getpid(), signal.SIGUSR1)
    print(signal.sigtimedwait([signal.SIGUSR2], 0.1))


if __name__ == "__main__":
    main()
