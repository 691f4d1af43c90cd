// Package telling is what both member programs share: orders as one JSON argument, what happens as JSON lines.
// It says what tests/clients/members/telling.py says.
package telling

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"
)

// Orders are Kafka's settings under one name for all libraries.
type Orders struct {
	Bootstrap           string   `json:"bootstrap"`
	Group               string   `json:"group"`
	ClientID            string   `json:"client_id"`
	Assignor            string   `json:"assignor"`
	Topics              []string `json:"topics"`
	Pattern             string   `json:"pattern"`
	InstanceID          string   `json:"instance_id"`
	SessionTimeoutMs    int64    `json:"session_timeout_ms"`
	HeartbeatIntervalMs int64    `json:"heartbeat_interval_ms"`
	MetadataMaxAgeMs    int64    `json:"metadata_max_age_ms"`
	Protocol            string   `json:"protocol"`
}

// Place is a topic and a partition; as JSON a pair.
type Place struct {
	Topic     string
	Partition int32
}

// MarshalJSON writes the pair.
func (place Place) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{place.Topic, place.Partition})
}

// Record is a topic, a partition, an offset and a value.
type Record struct {
	Place
	Offset int64
	Value  string
}

// MarshalJSON writes the four in a row.
func (record Record) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{record.Topic, record.Partition, record.Offset, record.Value})
}

// Told reads the orders.
func Told() Orders {
	var orders Orders
	if err := json.Unmarshal([]byte(os.Args[1]), &orders); err != nil {
		Die(err)
	}
	return orders
}

var (
	mutex sync.Mutex
	lines int
)

// Note is what a commit carries, so that the judge knows what had been told before it: who, and how many lines.
func (orders Orders) Note() string {
	mutex.Lock()
	defer mutex.Unlock()
	return fmt.Sprintf("%s %d", orders.ClientID, lines)
}

// Say writes one event at once and whole.
func Say(event string, details map[string]any) {
	mutex.Lock()
	defer mutex.Unlock()
	lines++
	line := map[string]any{"event": event, "at_ms": time.Now().UnixMilli()}
	for name, value := range details {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		Die(err)
	}
	os.Stdout.Write(append(text, '\n'))
}

// SayPartitions tells of an assignment or a revocation.
func SayPartitions(event string, places []Place) {
	sort.Slice(places, func(i, j int) bool {
		if places[i].Topic != places[j].Topic {
			return places[i].Topic < places[j].Topic
		}
		return places[i].Partition < places[j].Partition
	})
	if places == nil {
		places = []Place{}
	}
	Say(event, map[string]any{"partitions": places})
}

// Die ends with a word on stderr.
func Die(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
