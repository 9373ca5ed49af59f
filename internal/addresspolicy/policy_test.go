package addresspolicy

import (
	"errors"
	"net/netip"
	"net/url"
	"testing"
)

func TestCheck(t *testing.T) {
	const (
		never    = "never"
		loopback = "unless loopback is allowed"
		always   = ""
	)
	tests := map[string]string{
		"169.254.169.254": never, "169.254.0.1": never, "fe80::1": never, "fe80::1%eth0": never, "::ffff:169.254.169.254": never,
		"0.0.0.0": never, "::": never, "224.0.0.1": never, "ff02::1": never, "fd00:ec2::254": never, "fd20:ce::254": never,
		"100.100.100.200": never, "168.63.129.16": never, "192.0.0.192": never, "64:ff9b::a9fe:a9fe": never, "::ffff:100.100.100.200": never, "fd00:ec2::254%eth0": never,
		"127.0.0.1": loopback, "127.8.8.8": loopback, "::1": loopback, "::ffff:127.0.0.1": loopback, "64:ff9b::7f00:1": loopback,
		"10.0.0.1": always, "192.168.1.1": always, "fd00::1": always, "8.8.8.8": always, "64:ff9b::808:808": always, "100.100.100.201": always,
	}
	for text, refused := range tests {
		address := netip.MustParseAddr(text)
		for policy, want := range map[Policy]bool{{}: refused != always, {AllowLoopback: true}: refused == never} {
			host := text
			if address.Is6() {
				host = "[" + text + "]"
			}
			for way, err := range map[string]error{
				"Check":     policy.Check(address),
				"Control":   policy.Control("tcp", netip.AddrPortFrom(address, 443).String(), nil),
				"CheckHost": policy.CheckHost(&url.URL{Host: host + ":443"}),
			} {
				refusal, got := errors.AsType[*RefusedError](err)
				if got != want || got && refusal.Address != address {
					t.Errorf("%s of %s with %+v: %v, want it refused: %t", way, text, policy, err, want)
				}
			}
		}
	}
}

func TestControlRefusesWhatItCannotRead(t *testing.T) {
	if err := (Policy{}).Control("tcp", "metadata.example:443", nil); err == nil {
		t.Error("an address that cannot be read was let through")
	}
}

func TestCheckHostLeavesNamesToControl(t *testing.T) {
	if err := (Policy{}).CheckHost(&url.URL{Host: "login.example.com"}); err != nil {
		t.Error(err)
	}
}
