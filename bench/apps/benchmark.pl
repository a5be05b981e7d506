# Perl for the apps suite: regular expressions, hashes, sorting, arithmetic.
use strict;
use warnings;

my $seed = 1;
sub number { $seed = ($seed * 1103515245 + 12345) & 0x7fffffff; return ($seed >> 16) % $_[0]; }

my @lines = map { sprintf "user%d GET /page/%d?id=%x %d", number(100), number(50), number(30000), number(600) } 1 .. 20000;
my (%hits, %bytes);
for (@lines) {
    next unless m{^(\w+) GET /page/(\d+)\?id=([0-9a-f]+) (\d+)$};
    $hits{$2}++;
    $bytes{$1} += $4;
    s/(\d+)$/<$1>/;
}
my @top = sort { $hits{$b} <=> $hits{$a} || $a <=> $b } keys %hits;
my $sum = 0;
$sum = ($sum * 31 + length) % 1000003 for sort @lines;
my ($low, $high) = (0, 1);
($low, $high) = ($high, ($low + $high) % 1000007) for 1 .. 200000;
printf "%d %d %d %d\n", $top[0], $bytes{user7}, $sum, $high;
