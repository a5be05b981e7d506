# What programs in Perl do with sockets, each with both ends: `perl cases.pl CASE PORT`.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::IP;
use Socket qw(:DEFAULT getaddrinfo inet_pton inet_ntop);

my ($case, $port) = @ARGV;
$| = 1;
my %cases = (
    lines => sub {
        my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 5, ReuseAddr => 1) or die $!;
        if (!fork) {
            my $end = $server->accept;
            while (<$end>) { print $end scalar reverse; }
            exit 0;
        }
        my $client = IO::Socket::INET->new("127.0.0.1:$port") or die $!;
        print $client "abc\ndef\n";
        $client->shutdown(1);
        print map { s/\n/|/gr } <$client>;
        wait;
        print " $?\n";
    },
    ipv6 => sub {
        my $server = IO::Socket::IP->new(LocalHost => "::1", LocalPort => $port, Listen => 1) or die $@;
        my $client = IO::Socket::IP->new(PeerHost => "::1", PeerPort => $port) or die $@;
        my $end = $server->accept;
        print $client->peerhost, " ", $end->sockhost, " ", $end->sockport == $port ? "same" : "other", "\n";
    },
    preforked => sub {
        my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 50) or die $!;
        for (1 .. 4) {
            next if fork;
            for (1 .. 5) { my $end = $server->accept; print $end "served\n"; }
            exit 0;
        }
        close $server;
        my $count = 0;
        for (1 .. 20) { my $client = IO::Socket::INET->new("127.0.0.1:$port") or die $!; $count++ if <$client> eq "served\n"; }
        1 while wait != -1;
        print "$count\n";
    },
    select => sub {
        my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 50) or die $!;
        my @clients = map { IO::Socket::INET->new("127.0.0.1:$port") or die $! } 1 .. 10;
        syswrite $_, "x" x 10 for @clients;
        my ($select, $bytes, $ended) = (IO::Select->new($server), 0, 0);
        while ($ended < 10) {
            for my $one ($select->can_read(10)) {
                if ($one == $server) { $select->add($server->accept); next; }
                my $count = sysread $one, my $data, 100;
                if ($count) { $bytes += $count; syswrite $one, $data; } else { $ended++; $select->remove($one); close $one; }
            }
            if ($bytes == 100) { shutdown $_, 1 for @clients; }
        }
        print "$bytes $ended ", join("", map { sysread $_, my $data, 100; length $data } @clients), "\n";
    },
    http => sub {
        require HTTP::Tiny;
        my $answer = HTTP::Tiny->new->get("http://127.0.0.1:$port/f");
        print "$answer->{status} $answer->{content}";
        print HTTP::Tiny->new->get("http://127.0.0.1:" . ($port + 1))->{content} =~ s/ at .*//sr, "\n";
    },
    names => sub {
        my ($error, @found) = getaddrinfo("localhost", "http", { socktype => SOCK_STREAM, family => AF_INET });
        print "$error", join(",", map { (unpack_sockaddr_in($_->{addr}))[0] } @found), "\n";
        print join(" ", (getprotobyname "udp")[2], (getservbyname "ssh", "tcp")[2]), "\n";
        print join(".", unpack "C4", gethostbyname "localhost"), " ", inet_ntop(AF_INET6, inet_pton(AF_INET6, "::1")), "\n";
    },
);
$cases{$case}->();
