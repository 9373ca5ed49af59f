package adapterapi

import (
	"fmt"
	"testing"
)

// A list has as many pods as its size allows, from the beginning, and says so if that is not all.
func TestListsFit(t *testing.T) {
	many := func(count int) Peers {
		list := Peers{Version: PeersVersion, Generation: 1<<62 + 1, Gone: []string{"5f1e7a31-9d3c-4c1b-8a6e-0b7a4f2f7f11"}}
		for n := range count {
			list.Pods = append(list.Pods, PeerPod{
				UID: fmt.Sprintf("5f1e7a31-9d3c-4c1b-8a6e-%012d", n), Address: "[2001:db8::1234:5678]:16272", Zone: "region-1a",
				Ready: true, Verified: true, Newest: true, Sessions: 12, Limit: 20, Spares: 1,
			})
		}
		return list
	}
	for _, count := range []int{1, 2000, 2700, 5000, 20000} {
		whole := many(count)
		list, err := whole.Fit()
		if err != nil {
			t.Fatal(err)
		}
		document, err := list.Encode()
		if err != nil {
			t.Fatal(err)
		}
		read, err := DecodePeers([]byte(document.Text))
		if err != nil {
			t.Fatalf("%d pods: %v", count, err)
		}
		if len(document.Text) > MaxPeersBytes || read.Partial != (len(read.Pods) < count) || len(read.Gone) != 1 || len(whole.Pods) != count {
			t.Errorf("%d pods: %d bytes with %d pods, partial: %t", count, len(document.Text), len(read.Pods), read.Partial)
		}
		if read.Partial && (len(document.Text) < MaxPeersBytes-1000 || len(read.Pods) < 2000) {
			t.Errorf("%d pods: only %d are listed, in %d bytes", count, len(read.Pods), len(document.Text))
		}
		for i, pod := range read.Pods {
			if pod != whole.Pods[i] {
				t.Fatalf("pod %d of %d: got %+v", i, count, pod)
			}
		}
	}
	if list, err := many(2000).Fit(); err != nil || list.Partial {
		t.Errorf("2000 pods do not fit: %v", err)
	}
}
