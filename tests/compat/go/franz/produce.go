package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const perCodec = 20

// produce writes keyed records with every codec, and reads them back. Result: key -> partition.
func produce(r *run) any {
	r.createTopic(3)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	places := map[string]int32{}
	written := map[string]*kgo.Record{}
	for codec, compression := range codecs {
		producer := r.client(
			kgo.DefaultProduceTopic(r.name),
			kgo.ProducerBatchCompression(compression),
			kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // murmur2, as Java's
		)
		for n := range perCodec {
			key := fmt.Sprintf("%s-%d", codec, n)
			record := &kgo.Record{
				Key:       []byte(key),
				Value:     []byte(fmt.Sprintf("value of %s, value of %s", key, key)),
				Timestamp: time.UnixMilli(1_000 + int64(n)),
				Headers:   []kgo.RecordHeader{{Key: "n", Value: []byte{byte(n)}}, {Key: "none", Value: nil}},
			}
			written[key] = record
			producer.Produce(r.ctx, record, func(record *kgo.Record, err error) {
				must(err)
			})
		}
		must(producer.Flush(r.ctx))
		producer.Close()
	}
	// A tombstone, and a record without a key.
	producer := r.client(kgo.DefaultProduceTopic(r.name))
	must(producer.ProduceSync(r.ctx, &kgo.Record{Key: []byte("gone")}, &kgo.Record{Value: []byte("free")}).FirstErr())
	producer.Close()

	consumer := r.client(kgo.ConsumeTopics(r.name))
	defer consumer.Close()
	for _, record := range r.read(consumer, len(written)+2) {
		key := string(record.Key)
		sent := written[key]
		switch {
		case record.Key == nil:
			check(string(record.Value) == "free", "without a key: %q", record.Value)
		case key == "gone":
			check(record.Value == nil, "a tombstone's value: %q", record.Value)
		default:
			places[key] = record.Partition
			check(string(record.Value) == string(sent.Value), "%s: %q", key, record.Value)
			check(record.Timestamp.Equal(sent.Timestamp), "%s at %s", key, record.Timestamp)
			check(record.Offset == sent.Offset && record.Partition == sent.Partition, "%s moved", key)
			check(len(record.Headers) == 2 && record.Headers[0].Value[0] == sent.Headers[0].Value[0], "%s: headers", key)
			check(record.Headers[1].Value == nil, "%s: a header without a value", key)
			check(record.LeaderEpoch >= 0, "%s: no leader epoch", key)
		}
	}
	check(len(places) == len(written), "%d keys of %d", len(places), len(written))
	return places
}
