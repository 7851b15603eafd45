"""Spectrograms and what is made of them."""
from cases import *

for window, stride in ((8, 4), (5, 3), (16, 16), (2, 1), (300, 100)):
    for squared in (False, True):
        op("AudioSpectrogram", {"input": R(400, 2)}, {"window_size": window, "stride": stride, "magnitude_squared": squared})
op("AudioSpectrogram", {"input": R(3, 1)}, {"window_size": 8, "stride": 4})
op("AudioSpectrogram", {"input": R(0, 0)}, {"window_size": 8, "stride": 4})
op("AudioSpectrogram", {"input": R(8)}, {"window_size": 4, "stride": 2}, error="INVALID_ARGUMENT")
for attrs in ({}, {"dct_coefficient_count": 40}, {"filterbank_channel_count": 10, "dct_coefficient_count": 3},
              {"upper_frequency_limit": 7000.0, "lower_frequency_limit": 100.0}, {"lower_frequency_limit": 0.0}):
    op("Mfcc", {"spectrogram": R(2, 3, 257, lo=0, hi=9), "sample_rate": np.int32(16000)}, attrs)
op("Mfcc", {"spectrogram": R(1, 2, 5, lo=0, hi=9), "sample_rate": np.int32(44100)})
op("Mfcc", {"spectrogram": R(1, 2, 65, lo=0, hi=9), "sample_rate": np.int32(4000)})
op("Mfcc", {"spectrogram": R(1, 0, 65), "sample_rate": np.int32(16000)})
for shape, rate, attrs in (((1, 2, 1), 16000, {}), ((2, 65), 16000, {}), ((1, 2, 65), 0, {}), ((1, 2, 65), [16000], {}),
                           ((1, 2, 65), 16000, {"dct_coefficient_count": 41}), ((1, 2, 65), 16000, {"lower_frequency_limit": 5000.}),
                           ((1, 2, 65), 16000, {"filterbank_channel_count": 0})):
    op("Mfcc", {"spectrogram": R(*shape), "sample_rate": np.array(rate, np.int32)}, attrs, error="INVALID_ARGUMENT")
