#!/bin/sh
# A small C project by Debian's gcc and make -j4; then its program.
# Needs: gcc make
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for n in 1 2 3 4; do printf 'int part%d(int x) { return x * %d + 1; }\n' $n $n > part$n.c; done
cat > main.c <<'END'
#include <stdio.h>
int part1(int), part2(int), part3(int), part4(int);
int main(void) {
    printf("%d\n", part1(part2(part3(part4(1)))));
    return 3;
}
END
printf 'program: main.o part1.o part2.o part3.o part4.o\n\tgcc -o $@ $^\n%%.o: %%.c\n\tgcc -O1 -c -o $@ $<\n' > Makefile
make -s -j4
make
./program || echo "status $?"
