import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams' word count, exactly once: {@code WordCount BOOTSTRAP APPLICATION INPUT OUTPUT STATE-DIRECTORY}.
 *
 * <p>Words go through a repartition topic into a table with a changelog; every change of a count is written to
 * OUTPUT. It runs until its standard input ends, and leaves nothing half done; or until it is killed.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // no change of a count is left out
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6_000);
        config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 10_000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2])
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));

        CountDownLatch failed = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            failed.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // until it ends
        }
        boolean closed = streams.close(Duration.ofSeconds(60));
        System.exit(closed && failed.getCount() == 1 ? 0 : 1);
    }
}
