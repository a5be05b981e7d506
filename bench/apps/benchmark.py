"""Pure Python for the apps suite: arithmetic, objects, dictionaries, strings, lists."""


class Body:
    def __init__(self, place, speed, mass):
        self.place, self.speed, self.mass = place, speed, mass

    def move(self, others, step):
        for other in others:
            if other is not self:
                distance = other.place - self.place
                self.speed += other.mass * distance / (abs(distance) ** 3 + 0.01) * step
        self.place += self.speed * step


def bodies():
    system = [Body(complex(i, i * i % 5), complex(0, 1 / (i + 1)), 1 / (i + 1)) for i in range(5)]
    for _ in range(1000):
        for body in system:
            body.move(system, 0.01)
    return sum(abs(body.place) for body in system)


def primes(below):
    sieve = bytearray([1]) * below
    for number in range(2, int(below ** 0.5) + 1):
        if sieve[number]:
            for multiple in range(number * number, below, number):
                sieve[multiple] = 0
    return sum(sieve) - 2


def words(count):
    seen = {}
    seed = 1
    for _ in range(count):
        seed = seed * 1103515245 + 12345 & 0x7FFFFFFF
        word = "w%d" % (seed >> 16 & 1023)
        seen[word] = seen.get(word, 0) + 1
    return ",".join(sorted(seen, key=lambda word: (-seen[word], word))[:3])


print("%.6f %d %s" % (bodies(), primes(100000), words(50000)))
