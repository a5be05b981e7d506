import sys

print(sum(len(line.split()) for line in open(sys.argv[1])))
