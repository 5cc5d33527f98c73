PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE samples (
                    tar_file_id INTEGER NOT NULL,
                    sample_key TEXT NOT NULL UNIQUE,
                    sample_index INTEGER NOT NULL,
                    byte_offset INTEGER,
                    byte_size INTEGER
                );
INSERT INTO samples VALUES(0,'0000',0,0,4096);
INSERT INTO samples VALUES(0,'0001',1,4096,4096);
INSERT INTO samples VALUES(0,'0002',2,8192,4096);
INSERT INTO samples VALUES(0,'0003',3,12288,4096);
INSERT INTO samples VALUES(0,'0004',4,16384,4096);
INSERT INTO samples VALUES(1,'0005',0,0,4096);
INSERT INTO samples VALUES(1,'0006',1,4096,4096);
INSERT INTO samples VALUES(1,'0007',2,8192,4096);
INSERT INTO samples VALUES(1,'0008',3,12288,4096);
INSERT INTO samples VALUES(2,'0009',0,0,4096);
INSERT INTO samples VALUES(2,'0010',1,4096,4096);
INSERT INTO samples VALUES(2,'0011',2,8192,4096);
CREATE TABLE sample_parts (
                    tar_file_id INTEGER,
                    sample_index INTEGER,
                    part_name TEXT,
                    content_byte_offset INTEGER,
                    content_byte_size INTEGER
                );
INSERT INTO sample_parts VALUES(0,0,'txt',1536,6);
INSERT INTO sample_parts VALUES(0,0,'cls',3584,1);
INSERT INTO sample_parts VALUES(0,1,'txt',5632,6);
INSERT INTO sample_parts VALUES(0,1,'cls',7680,1);
INSERT INTO sample_parts VALUES(0,2,'txt',9728,6);
INSERT INTO sample_parts VALUES(0,2,'cls',11776,1);
INSERT INTO sample_parts VALUES(0,3,'txt',13824,6);
INSERT INTO sample_parts VALUES(0,3,'cls',15872,1);
INSERT INTO sample_parts VALUES(0,4,'txt',17920,6);
INSERT INTO sample_parts VALUES(0,4,'cls',19968,1);
INSERT INTO sample_parts VALUES(1,0,'txt',1536,6);
INSERT INTO sample_parts VALUES(1,0,'cls',3584,1);
INSERT INTO sample_parts VALUES(1,1,'txt',5632,6);
INSERT INTO sample_parts VALUES(1,1,'cls',7680,1);
INSERT INTO sample_parts VALUES(1,2,'txt',9728,6);
INSERT INTO sample_parts VALUES(1,2,'cls',11776,1);
INSERT INTO sample_parts VALUES(1,3,'txt',13824,6);
INSERT INTO sample_parts VALUES(1,3,'cls',15872,1);
INSERT INTO sample_parts VALUES(2,0,'txt',1536,6);
INSERT INTO sample_parts VALUES(2,0,'cls',3584,1);
INSERT INTO sample_parts VALUES(2,1,'txt',5632,7);
INSERT INTO sample_parts VALUES(2,1,'cls',7680,1);
INSERT INTO sample_parts VALUES(2,2,'txt',9728,7);
INSERT INTO sample_parts VALUES(2,2,'cls',11776,1);
CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full ON sample_parts(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size);
COMMIT;
