package controller

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func breakFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mendFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// killEcho ends the server processes of every adapter in the namespace, and no others.
func killEcho(t *testing.T, namespace string) {
	t.Helper()
	for _, pod := range listed(t, namespace, &corev1.PodList{}) {
		for _, pid := range childrenOf(t, shared.kubelet.launcherOf(pod.GetUID()).Pid) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // it ended by itself
				t.Errorf("kill %d: %v", pid, err)
			}
		}
	}
}

// childrenOf are the processes that a process has started.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(parent) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, task := range tasks {
		content, err := os.ReadFile(task)
		if err != nil {
			continue // the thread ended
		}
		for word := range strings.FieldsSeq(string(content)) {
			if pid, err := strconv.Atoi(word); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}
