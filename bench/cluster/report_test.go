package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParsePlan(t *testing.T) {
	plan, err := parsePlan("1x10,100x1")
	if diff := cmp.Diff([]size{{1, 10}, {100, 1}}, plan, cmp.AllowUnexported(size{})); err != nil || diff != "" {
		t.Errorf("error %v, plan (-want +got):\n%s", err, diff)
	}
	for _, wrong := range []string{"", "1", "1x", "x1", "0x1", "1x0", "1x1,", "onextwo"} {
		if plan, err := parsePlan(wrong); err == nil {
			t.Errorf("%q is taken for %v", wrong, plan)
		}
	}
}

// Every server has its own beginning; a round has that of the first.
func TestRound(t *testing.T) {
	first := at(0, 5, 25, 30, 40, 45, 900, 910, 1200, 1300)
	second := at(100, 110, 135, 150, 160, 165, 900, 910, 1300, 1500)
	r := newRound([]*timeline{second, first}, time.Second)
	if r.Servers != 2 || r.Created != 0.110 || r.AllVerified != 1.5 {
		t.Errorf("%d servers, created in %v s, all verified after %v s", r.Servers, r.Created, r.AllVerified)
	}
	if diff := cmp.Diff([]float64{1.3, 1.4}, r.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{0.015, 0.025}, roundAll(stagesOf([]round{r}, []milestone{replicaSetSeen, podSeen}))); diff != "" {
		t.Errorf("ReplicaSet and pod (-want +got):\n%s", diff)
	}
}

// roundAll rounds to milliseconds.
func roundAll(seconds []float64) (rounded []float64) {
	for _, s := range seconds {
		rounded = append(rounded, time.Duration(s*float64(time.Second)).Round(time.Millisecond).Seconds())
	}
	return rounded
}

// Every stage is in just one row.
func TestRowsHaveEveryStage(t *testing.T) {
	var got []milestone
	for _, row := range rows {
		got = append(got, row.until...)
	}
	var want []milestone
	for m := stored; m <= verified; m++ {
		want = append(want, m)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stages in rows (-want +got):\n%s", diff)
	}
}

func TestMarkdown(t *testing.T) {
	line := at(0, 5, 25, 30, 40, 45, 900, 910, 1200, 1300)
	r := results{Rounds: []round{newRound([]*timeline{line, line}, time.Second), newRound([]*timeline{line}, 2*time.Second), newRound([]*timeline{line}, 2*time.Second)}}
	text := r.markdown()
	for _, want := range []string{
		"| seconds, p50 (p95) | 1 at once, 2 round(s) | 2 at once, 1 round(s) |\n|---|---|---|\n",
		"| scheduling: ReplicaSet and pod are made | 0.015 (0.015) | 0.015 (0.015) |\n",
		"| **from create to Ready and Verified** | **1.300 (1.300)** | **1.300 (1.300)** |\n",
		"| all verified, since the first was asked for | 1.30 (1.30–1.30) | 1.30 |\n",
		"| all verified ÷ bare pods ready | 0.65 (0.65–0.65) | 1.30 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}
