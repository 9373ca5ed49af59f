package search

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRank(t *testing.T) {
	documents := []Document{
		{"close_ticket", "Closes a ticket with a comment."},
		{"list_tickets", "Lists the tickets of a project."},
		{"openDoor", "Opens a door. It does not close it."},
		{"weather", "Says what the weather is like."},
	}
	for query, want := range map[string][]string{
		"close ticket":  {"close_ticket", "list_tickets", "openDoor"},
		"Tickets":       {"close_ticket", "list_tickets"},
		"door":          {"openDoor"},
		"the":           {"weather", "list_tickets"},
		"nothing of it": {"openDoor", "list_tickets"},
		"absent":        nil,
		"":              nil,
	} {
		t.Run(query, func(t *testing.T) {
			var got []string
			for _, i := range Rank(documents, query) {
				got = append(got, documents[i].Name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
