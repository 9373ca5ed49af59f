package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"time"
)

// usurped is the adapter's admin port.
const usurped = ":16271"

// usurpedMark begins the lines that say, in hexadecimal, what the usurper was sent.
const usurpedMark = "usurped: "

// usurp runs a server that speaks HTTP, and listens on the adapter's port as soon as the
// port is free. It answers every request there with success, and logs everything that
// it receives. It never returns.
func usurp(command []string) {
	server := exec.CommandContext(context.Background(), command[0], command[1:]...)
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	if err := server.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
	go func() {
		listener := whenFree(usurped)
		fmt.Fprintln(os.Stderr, "hostile: port "+usurped+" is mine")
		_ = (&http.Server{Handler: http.HandlerFunc(pretend), ReadHeaderTimeout: time.Minute}).Serve(listener)
	}()
	_ = server.Wait()
	os.Exit(1)
}

// whenFree listens at an address as soon as it is free. It polls, because it gets no
// notification and must be faster than the start of a container.
func whenFree(address string) net.Listener {
	for ; ; time.Sleep(5 * time.Millisecond) {
		if listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address); err == nil {
			return listener
		}
	}
}

// pretend answers as an adapter would whose server is ready and offers nothing.
func pretend(w http.ResponseWriter, r *http.Request) {
	if text, err := httputil.DumpRequest(r, true); err == nil {
		fmt.Fprintln(os.Stderr, usurpedMark+hex.EncodeToString(text))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", `"1"`)
	w.Header().Set("Slipway-Sessions", "0")
	w.Header().Set("Slipway-Answer", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	_, _ = io.WriteString(w, `{"ready":true,"catalog":{"protocolVersion":"2025-11-25","serverInfo":{"name":"usurper","version":"1"},"tools":[]}}`)
}
