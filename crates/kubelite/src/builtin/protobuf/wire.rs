//! Protobuf's wire format: a message is a row of numbered fields.

use super::ProtobufError;

/// A varint of 64 bits never takes more bytes.
const VARINT_BYTES_MAX: usize = 10;

/// The value of one field as it travels.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

/// Walks the fields of a message.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let result = self.read();
        if result.is_err() {
            self.0 = &[];
        }
        Some(result)
    }
}

impl<'a> Fields<'a> {
    fn read(&mut self) -> Result<(u64, Wire<'a>), ProtobufError> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                Wire::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            other => return Err(ProtobufError::WireType(other)),
        };
        Ok((tag >> 3, value))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (head, tail) = self.0.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value: u64 = 0;
        for (index, byte) in self.0.iter().take(VARINT_BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = self.0.split_at(index + 1).1;
                return Ok(value);
            }
        }
        Err(if self.0.len() < VARINT_BYTES_MAX {
            ProtobufError::Truncated
        } else {
            ProtobufError::Overflow
        })
    }
}
