# The commands of README.md. What is behind them is in xtask/ (Rust) and scripts/ (set-up).

CARGO := scripts/cargo

PREFIX ?= /usr/local

.PHONY: run test compare images network repeat setup build install uninstall deb check fmt clean

# Installs what is missing, builds, boots, and runs a real Linux program.
run: setup
	@./aegis run busybox sh -c 'echo "Hello from busybox, unmodified, on Aegis."; uname -a'

# Unit tests on the host, style and laws, and the suites that boot QEMU.
test: setup
	@$(CARGO) xtask test

# The programs of tests/linux on Aegis and on Debian's Linux, side by side. Not part of `test`: apt fetches that kernel, once.
compare: setup
	@$(CARGO) xtask compare

# The commands of tests/commands, 50 times each on 1, 2 and 4 processors, against the host. Not part of `test`: it takes hours.
# `make repeat WITH='--times 5 --cpus 2 git.sh'` makes it shorter.
repeat: setup
	@$(CARGO) xtask repeat $(WITH)

# What is typed for podman, in its containers and on Aegis; makes images of Debian's packages. `make images ONLY=nginx`.
images: setup
	@$(CARGO) xtask images $(ONLY)

# Commands that use the network, output and status against the host; those too that take minutes. Programs that this host
# lacks can be unpacked into a folder: `make network WITH='--programs /folder nginx'`.
network: setup
	@$(CARGO) xtask network $(WITH)

# Installs what is missing; nothing else.
setup:
	@scripts/setup

build: setup
	@$(CARGO) xtask build

# The tool, the kernels and library OSes, manual pages, and completion for bash and zsh: `make install PREFIX=/somewhere`.
install: build
	@scripts/install "$(DESTDIR)" "$(PREFIX)"

uninstall:
	@scripts/install --remove "$(DESTDIR)" "$(PREFIX)"

# A Debian package, in target/.
deb: build
	@scripts/deb

# Formatting, clippy, limits and laws (tidy.toml).
check:
	@$(CARGO) xtask tidy

fmt:
	@$(CARGO) fmt --all

clean:
	@$(CARGO) clean
