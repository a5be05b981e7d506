#!/usr/bin/perl
# fork, pipes, signals and waiting.
use strict;
use warnings;
my @children;
for my $n (1 .. 4) {
    pipe(my $read, my $write) or die;
    my $pid = fork;
    die unless defined $pid;
    if ($pid == 0) {
        close $read;
        print $write join(' ', map { $_ * $n } 1 .. 5), "\n";
        close $write;
        exit $n;
    }
    close $write;
    push @children, [$pid, $read];
}
for my $child (@children) {
    my ($pid, $read) = @$child;
    print scalar <$read>;
    waitpid $pid, 0;
    print "status ", $? >> 8, "\n";
}
local $SIG{ALRM} = sub { print "alarm\n" };
alarm 1;
select undef, undef, undef, 5;
open my $sort, '|-', 'sort -n' or die;
print $sort "$_\n" for 9, 1, 5;
close $sort;
print `echo from a command`;
